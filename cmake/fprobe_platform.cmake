# What is built for: FPROBE_ARCH (a folder of src/arch), the decoder, and the C++ runtime a C linker must be told about.
include(CheckCXXSourceCompiles)

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "libfprobe: ${CMAKE_SYSTEM_NAME} is not supported, only Linux with glibc is.")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(FPROBE_ARCH x86_64)
else()
  message(FATAL_ERROR "libfprobe: the processor ${CMAKE_SYSTEM_PROCESSOR} with ${CMAKE_SIZEOF_VOID_P}-byte pointers is not "
                      "supported yet: this version knows 64-bit x86-64 only (aarch64 is planned).")
endif()

# Debian has Zydis as a shared library only, so a static libfprobe takes Capstone, which also serves -static programs.
if(BUILD_SHARED_LIBS)
  set(_fprobe_decoder_default zydis)
else()
  set(_fprobe_decoder_default capstone)
endif()
set(FPROBE_DECODER "" CACHE STRING "Instruction decoder: zydis | capstone | empty (shared: zydis, static: capstone)")
set_property(CACHE FPROBE_DECODER PROPERTY STRINGS "" zydis capstone)
set(FPROBE_DECODER_USED "${FPROBE_DECODER}")
if(NOT FPROBE_DECODER_USED)
  set(FPROBE_DECODER_USED ${_fprobe_decoder_default})
endif()

# Consumers of a static libfprobe get the decoder by its plain name: no find_package, no path of the build machine.
if(FPROBE_DECODER_USED STREQUAL "capstone")
  set(FPROBE_DECODER_LIBRARY capstone)
  set(_fprobe_decoder_header capstone/capstone.h)
elseif(FPROBE_DECODER_USED STREQUAL "zydis")
  set(FPROBE_DECODER_LIBRARY Zydis)
  set(_fprobe_decoder_header Zydis/Zydis.h)
else()
  message(FATAL_ERROR "libfprobe: FPROBE_DECODER is '${FPROBE_DECODER}', but only zydis and capstone are known.")
endif()
find_path(FPROBE_INCLUDE_${FPROBE_DECODER_USED} ${_fprobe_decoder_header})
set(FPROBE_DECODER_INCLUDE "${FPROBE_INCLUDE_${FPROBE_DECODER_USED}}")
if(NOT FPROBE_DECODER_INCLUDE)
  message(FATAL_ERROR "libfprobe: ${_fprobe_decoder_header} not found (Debian: libzydis-dev for FPROBE_DECODER=zydis, "
                      "libcapstone-dev for capstone).")
endif()

check_cxx_source_compiles("
#include <cstddef>
#ifndef _LIBCPP_VERSION
#error not libc++
#endif
int main() { return 0; }" FPROBE_USES_LIBCXX)
if(FPROBE_USES_LIBCXX)
  set(FPROBE_CXX_RUNTIME c++ c++abi)
else()
  set(FPROBE_CXX_RUNTIME stdc++)
endif()

# A project that instruments itself through CMAKE_<LANG>_FLAGS and adds libfprobe as a subproject must not instrument
# libfprobe: its own code would become sites and every hit would hit again. Takes effect in this directory and below.
foreach(_fprobe_lang C CXX)
  string(REGEX REPLACE "(^| )(-pg|-mfentry|-mnop-mcount|-mrecord-mcount|-finstrument-functions|-fpatchable-function-entry=[0-9,]+)+"
                       " " CMAKE_${_fprobe_lang}_FLAGS "${CMAKE_${_fprobe_lang}_FLAGS}")
endforeach()
get_directory_property(_fprobe_options COMPILE_OPTIONS)
list(FILTER _fprobe_options EXCLUDE REGEX "^(-pg|-mfentry|-mnop-mcount|-mrecord-mcount|-finstrument-functions|-fpatchable-function-entry=.*)$")
set_directory_properties(PROPERTIES COMPILE_OPTIONS "${_fprobe_options}")
