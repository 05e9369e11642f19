#include "base/ids.h"

namespace kvferry {

std::string to_hex(const Bits128& bits) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (int i = 0; i < 16; ++i) {
    text[15 - i] = digits[(bits.high >> (4 * i)) & 15];
    text[31 - i] = digits[(bits.low >> (4 * i)) & 15];
  }
  return text;
}

}  // namespace kvferry
