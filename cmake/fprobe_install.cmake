# Install rules: headers, library, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)

set(_fprobe_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fprobe")
install(TARGETS fprobe EXPORT fprobe-targets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/fprobe DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT fprobe-targets NAMESPACE fprobe:: DESTINATION "${_fprobe_package_dir}")

configure_package_config_file(cmake/fprobe-config.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/fprobe-config.cmake"
                              INSTALL_DESTINATION "${_fprobe_package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/fprobe-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fprobe-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/fprobe-config-version.cmake"
              cmake/fprobe_instrument.cmake DESTINATION "${_fprobe_package_dir}")

# A static library's own needs stand in Libs, not in Libs.private: `pkg-config --libs fprobe` has to be enough.
set(FPROBE_PC_LIBS "")
if(NOT BUILD_SHARED_LIBS)
  foreach(_fprobe_lib IN ITEMS ${FPROBE_DECODER_LIBRARY} ${FPROBE_CXX_RUNTIME} dl pthread)
    string(APPEND FPROBE_PC_LIBS " -l${_fprobe_lib}")
  endforeach()
endif()
# Relative to the file itself, so that an installed tree may be moved; absolute folders stay as they are.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(FPROBE_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(FPROBE_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH _fprobe_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" _fprobe_up "${_fprobe_up}")
  set(FPROBE_PC_PREFIX "\${pcfiledir}/${_fprobe_up}")
  set(FPROBE_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(FPROBE_PC_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(FPROBE_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/fprobe.pc.in "${CMAKE_CURRENT_BINARY_DIR}/fprobe.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/fprobe.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
