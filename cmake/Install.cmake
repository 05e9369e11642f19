# libkvferry.so, its headers, its CMake package and pkg-config file, and the kvferry command.
#
# One shared library made of the objects of every folder of src/: users link kvferry::kvferry and include the public
# headers; Boost, Protobuf and spdlog stay inside.
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY KVFERRY_MODULES)
set(objects)
foreach(module IN ITEMS kvf_wire LISTS modules)
  get_target_property(type ${module} TYPE)
  get_target_property(folder ${module} SOURCE_DIR)
  string(FIND ${folder} ${PROJECT_SOURCE_DIR}/src/ place)
  if(type STREQUAL "STATIC_LIBRARY" AND place EQUAL 0)
    list(APPEND objects $<TARGET_OBJECTS:${module}>)
  endif()
endforeach()

add_library(kvferry_shared SHARED ${objects})
add_library(kvferry::kvferry ALIAS kvferry_shared)
set_target_properties(kvferry_shared PROPERTIES
  OUTPUT_NAME kvferry EXPORT_NAME kvferry LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_compile_features(kvferry_shared INTERFACE cxx_std_20)
target_include_directories(kvferry_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(kvferry_shared PRIVATE
  protobuf::libprotobuf-lite Boost::json OpenSSL::SSL OpenSSL::Crypto spdlog::spdlog Threads::Threads)
set_target_properties(kvf_wire PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_link_options(kvferry_shared PRIVATE -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/kvferry.map)
set_property(TARGET kvferry_shared APPEND PROPERTY LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kvferry.map)
if(NOT KVFERRY_SANITIZE)
  # A symbol that no folder defines is found here, and not by the first user who links.
  target_link_options(kvferry_shared PRIVATE -Wl,--no-undefined)
endif()

# What `make build` leaves behind: the library and the command (tools/ installs that), without tests.
add_custom_target(product DEPENDS kvferry_shared)
if(TARGET kvferry)
  add_dependencies(product kvferry)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvferry)
install(TARGETS kvferry_shared EXPORT kvferry LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kvferry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(EXPORT kvferry NAMESPACE kvferry:: FILE kvferryTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kvferryConfig.cmake.in kvferryConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(kvferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvferryConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/kvferryConfigVersion.cmake
        DESTINATION ${package_dir})
# The prefix is found from the file's own place, so that a tree that was moved after its installation still works.
file(RELATIVE_PATH KVFERRY_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" KVFERRY_PC_UP "${KVFERRY_PC_UP}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/kvferry.pc.in kvferry.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvferry.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
