#pragma once

#include "base/crc32c.h"
