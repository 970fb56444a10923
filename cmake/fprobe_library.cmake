# The library: sources, the flags of the files that run on a hit, and what a consumer sees.
set(_fprobe_arch_dir src/arch/${FPROBE_ARCH})
file(GLOB FPROBE_SOURCES RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
     src/core/*/*.cpp ${_fprobe_arch_dir}/*.cpp ${_fprobe_arch_dir}/*.S)
foreach(_fprobe_decoder zydis capstone)
  if(NOT FPROBE_DECODER_USED STREQUAL _fprobe_decoder)
    list(REMOVE_ITEM FPROBE_SOURCES ${_fprobe_arch_dir}/decode_${_fprobe_decoder}.cpp)
  endif()
endforeach()
list(SORT FPROBE_SOURCES)

# Code that runs on a hit, listed once. It may run inside any function of the program, with nothing but the integer
# registers saved under FPROBE_FL_GENERAL_REGS: so no vector instructions, no sanitizer (their runtimes are probed code's),
# no stack protector, no instrumentation of any kind, and optimized in every build type.
set(FPROBE_HOT_SOURCES ${FPROBE_SOURCES})
list(FILTER FPROBE_HOT_SOURCES INCLUDE REGEX "^src/core/hot/.*\\.cpp$|^src/core/registry/site_table\\.cpp$|^src/arch/[^/]*/(entry|return|syscall|live_call)[^/]*\\.cpp$")
set(FPROBE_HOT_FLAGS -O2 -fno-sanitize=all -fno-exceptions -fno-stack-protector -fpatchable-function-entry=0 -fno-lto)
# Their loops must not become calls of memset: libc's uses wider vector registers than are saved.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND FPROBE_HOT_FLAGS -mno-sse -mno-mmx -fno-builtin)  # -mgeneral-regs-only would refuse `long double` in standard headers
else()
  list(APPEND FPROBE_HOT_FLAGS -mgeneral-regs-only -fno-tree-loop-distribute-patterns)
endif()
set_source_files_properties(${FPROBE_HOT_SOURCES} PROPERTIES COMPILE_OPTIONS "${FPROBE_HOT_FLAGS}")

# fprobe_make_library(<target> STATIC|SHARED [<object file>...]): the objects make it up in place of the sources.
function(fprobe_make_library target type)
  if(ARGN)
    add_library(${target} ${type} ${ARGN})
  else()
    add_library(${target} ${type} ${FPROBE_SOURCES})
  endif()
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINKER_LANGUAGE CXX
    INTERPROCEDURAL_OPTIMIZATION OFF
    POSITION_INDEPENDENT_CODE ON)  # a static libfprobe may become part of somebody's shared object
  target_include_directories(${target}
    PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
    PRIVATE src/core src/arch/${FPROBE_ARCH})
  target_include_directories(${target} SYSTEM PRIVATE ${FPROBE_DECODER_INCLUDE})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE FPROBE_VERSION="${PROJECT_VERSION}")
  if(FPROBE_SANITIZE STREQUAL "thread")
    # The hit path is compiled without it, and tells it the orders that it cannot see (base/tsan.h).
    target_compile_definitions(${target} PRIVATE FPROBE_SANITIZE_THREAD)
  endif()
  target_compile_options(${target} PRIVATE -fasynchronous-unwind-tables -fno-lto
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>  # constants of headers would stay global
    $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wno-sign-conversion>)
  # $<BUILD_INTERFACE> keeps these two out of the exported target.
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:fprobe_warnings> $<BUILD_INTERFACE:fprobe_sanitize>)
  if(FPROBE_SANITIZE)
    target_link_options(${target} INTERFACE -fsanitize=${FPROBE_SANITIZE})
  endif()

  # Plain names only: an installed static libfprobe asks its consumer for nothing but a linker.
  target_link_libraries(${target} PRIVATE ${FPROBE_DECODER_LIBRARY} dl pthread)
  if(type STREQUAL "SHARED")
    # nodelete: threads may be inside at any time. now: a hit must not enter the dynamic linker. The version script also
    # hides the standard library's templates, which -fvisibility=hidden does not.
    set(map "${PROJECT_SOURCE_DIR}/cmake/fprobe.map")
    target_link_options(${target} PRIVATE -Wl,-z,nodelete -Wl,-z,now "-Wl,--version-script=${map}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
    if(NOT FPROBE_SANITIZE)  # a sanitizer's symbols come from the executable
      target_link_options(${target} PRIVATE -Wl,-z,defs)
    endif()
  else()
    # A C++ linker brings its own C++ library; naming it a second time would defeat -static-libstdc++.
    foreach(library IN LISTS FPROBE_CXX_RUNTIME)
      target_link_libraries(${target} PRIVATE $<$<LINK_LANGUAGE:C>:${library}>)
    endforeach()
  endif()
endfunction()

# The static library of users is one object whose only global symbols are the public ones. Otherwise an inline function
# of the standard library that the hit path calls would be the copy that the linker chose among everybody's: perhaps one
# of the program's own, with a probe site, and the hit would hit again without end.
function(fprobe_make_closed_library target objects)
  set(map "${PROJECT_SOURCE_DIR}/cmake/fprobe.map")
  file(STRINGS "${map}" names REGEX "^ +[a-z_].*;$")
  list(FILTER names EXCLUDE REGEX ":")
  string(REGEX REPLACE "[; ]+" "\n" names "${names}")
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/public_symbols" CONTENT "${names}\n" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${map}")
  set(closed "${CMAKE_CURRENT_BINARY_DIR}/fprobe.o")
  add_custom_command(OUTPUT "${closed}"
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o "${closed}.open" $<TARGET_OBJECTS:${objects}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${CMAKE_CURRENT_BINARY_DIR}/public_symbols "${closed}.open" "${closed}"
    COMMAND ${CMAKE_COMMAND} -E rm "${closed}.open"
    DEPENDS $<TARGET_OBJECTS:${objects}> "${CMAKE_CURRENT_BINARY_DIR}/public_symbols"
    COMMENT "Linking libfprobe into one object" COMMAND_EXPAND_LISTS VERBATIM)
  fprobe_make_library(${target} STATIC "${closed}")
  add_dependencies(${target} ${objects})
endfunction()

if(BUILD_SHARED_LIBS)
  fprobe_make_library(fprobe SHARED)
elseif(FPROBE_SANITIZE)  # sanitizers tie data to groups of sections
  fprobe_make_library(fprobe STATIC)
else()
  fprobe_make_library(fprobe_open STATIC)
  fprobe_make_closed_library(fprobe fprobe_open)
endif()
set_target_properties(fprobe PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
add_library(fprobe::fprobe ALIAS fprobe)

# The tests reach hidden symbols. Made here and not in tests/: the hot files' flags are known to this directory only.
if(FPROBE_BUILD_TESTS)
  if(BUILD_SHARED_LIBS)
    fprobe_make_library(fprobe_for_tests STATIC)
  elseif(FPROBE_SANITIZE)
    add_library(fprobe_for_tests ALIAS fprobe)
  else()
    add_library(fprobe_for_tests ALIAS fprobe_open)
  endif()
endif()
