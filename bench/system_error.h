// errno as an Error.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "kvferry/result.h"

namespace kvferry::bench {

// `doing` reads as in "mapping 4096 bytes: Cannot allocate memory". Takes errno of the call that just failed.
inline Error system_error(const std::string& doing) {
  const int number = errno;
  return {.code = Code::internal, .text = doing + ": " + std::generic_category().message(number)};
}

}  // namespace kvferry::bench
