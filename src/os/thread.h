// Threads of the library: named, with every signal blocked, so that an engine's handlers never run on them.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace kvferry::os {
// `name` is cut to the 15 characters that the kernel keeps.
std::thread start_thread(const std::string& name, std::function<void()> body);
}  // namespace kvferry::os
