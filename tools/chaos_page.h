// The timeline of a chaos run as an HTML page with an SVG picture: a lane for every worker, and what got through.
#pragma once

#include <string>

#include "tools/chaos_run.h"

namespace kvferry::tools {

std::string chaos_page(const ChaosPlan& plan, const ChaosResult& result);

}  // namespace kvferry::tools
