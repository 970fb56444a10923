# Flags of the project's own targets. Nothing here reaches a consumer, except that a sanitized libfprobe needs its
# sanitizer's runtime at link time.
add_library(fprobe_warnings INTERFACE)
target_compile_options(fprobe_warnings INTERFACE -Wall -Wextra -pedantic -Wshadow)
if(FPROBE_WERROR)
  target_compile_options(fprobe_warnings INTERFACE -Werror)
endif()

add_library(fprobe_sanitize INTERFACE)
if(FPROBE_SANITIZE)
  if(NOT FPROBE_SANITIZE MATCHES "^(address,undefined|undefined,address|address|undefined|thread)$")
    message(FATAL_ERROR "libfprobe: FPROBE_SANITIZE is '${FPROBE_SANITIZE}'; use address,undefined or thread or leave it empty.")
  endif()
  target_compile_options(fprobe_sanitize INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${FPROBE_SANITIZE};-fno-omit-frame-pointer>")
  if(FPROBE_SANITIZE MATCHES "undefined")
    target_compile_options(fprobe_sanitize INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=undefined>)
  endif()
  target_link_options(fprobe_sanitize INTERFACE -fsanitize=${FPROBE_SANITIZE})
endif()
