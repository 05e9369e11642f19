#include "engine/engine_main.h"

int main(int argc, char** argv) { return kvferry::engine::engine_main(argc, argv); }
