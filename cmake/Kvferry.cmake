# The warnings, sanitizers and the one way to declare a folder of the house.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(spdlog REQUIRED)

add_library(kvf_flags INTERFACE)
target_compile_options(kvf_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 takes "literal" + std::string&& for an overlapping copy (GCC bug 105651), and members of a moved variant for
  # uninitialized.
  target_compile_options(kvf_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(KVFERRY_WERROR)
  target_compile_options(kvf_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(kvf_flags INTERFACE -Wthread-safety)
endif()
if(KVFERRY_SANITIZE)
  add_compile_options(-fsanitize=${KVFERRY_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVFERRY_SANITIZE})
  # The thread sanitizer does not know fences and GCC warns of each; Asio's own locks order what they would.
  if(KVFERRY_SANITIZE MATCHES "thread")
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

if(KVFERRY_FUZZ)
  # The code under the fuzzers tells them which branches it takes.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# One call a folder: sources, headers, and the floors it stands on. A folder sees exactly the headers of the floors
# named in ON (and what they stand on), so an include from above or beside does not compile.
#   kvf_module(core SOURCES a.cpp HEADERS a.h ON base layout LIBS OpenSSL::Crypto)
function(kvf_module name)
  cmake_parse_arguments(M "" "" "SOURCES;HEADERS;ON;LIBS" ${ARGN})
  if(M_SOURCES)
    add_library(kvf_${name} STATIC ${M_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(kvf_${name} PRIVATE $<BUILD_INTERFACE:kvf_flags>)
    # libkvferry.so is made of these objects and shows what KVFERRY_API marks, nothing else.
    set_target_properties(kvf_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  else()
    add_library(kvf_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  # Every folder is reached as "folder/header.h" through a tree of links that holds this folder alone.
  set(view ${CMAKE_BINARY_DIR}/floors/${name})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${view}/${name} SYMBOLIC)
  target_include_directories(kvf_${name} ${scope} $<BUILD_INTERFACE:${view}>)
  foreach(floor IN LISTS M_ON)
    target_link_libraries(kvf_${name} ${scope} kvf_${floor})
  endforeach()
  target_link_libraries(kvf_${name} ${scope} ${M_LIBS})
  set_property(GLOBAL APPEND PROPERTY KVFERRY_MODULES kvf_${name})
endfunction()

# Everything that ctest runs, and nothing else: what a sanitizer build needs.
add_custom_target(tests_all)

# A test binary, registered as one CTest test. LABELS: unit, property, sim or process; those of processes run alone,
# since each of them wants the machine for itself.
#   kvf_test(core SOURCES a_test.cpp ON core LABELS unit)
function(kvf_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;ON;LIBS;LABELS" ${ARGN})
  add_executable(test_${name} ${T_SOURCES})
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(floor IN LISTS T_ON)
    target_link_libraries(test_${name} PRIVATE kvf_${floor})
  endforeach()
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE kvf_flags GTest::gtest GTest::gmock GTest::gtest_main ${T_LIBS})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
  if("process" IN_LIST T_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
  add_dependencies(tests_all test_${name})
endfunction()
