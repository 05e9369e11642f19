// Marks what the shared library offers; everything else in it is hidden from its users.
#pragma once

#define KVFERRY_API __attribute__((visibility("default")))
