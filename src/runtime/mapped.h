// Whether registered memory is there at all.
#pragma once

#include "kvferry/layout.h"
#include "kvferry/result.h"

namespace kvferry::runtime {
// `invalid_argument` naming the first region with a page that is not mapped in this process.
Result<void> check_mapped(const Memory& memory);
}  // namespace kvferry::runtime
