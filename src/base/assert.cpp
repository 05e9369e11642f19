#include "base/assert.h"

namespace kvferry {
void assertion_failed(const char* what, const char* file, int line) { throw AssertionFailed{what, file, line}; }
}  // namespace kvferry
