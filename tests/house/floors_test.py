"""Plants one breach of each rule in a small tree and wants exactly that one reported."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import floors  # noqa: E402


class Floors(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, path, text, listed=True):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if listed and file.suffix == ".cpp":
            with (file.parent / "CMakeLists.txt").open("a") as lists:
                lists.write(f"kvf_module(x SOURCES {file.name})\n")

    def expect(self, *parts):
        found = floors.findings(self.root)
        self.assertEqual(len(found), len(parts), found)
        for finding, part in zip(found, parts):
            self.assertIn(part, finding)

    def test_a_tree_that_keeps_the_rules_has_no_findings(self):
        self.write("src/core/room.cpp", '#include "base/ids.h"\n#include <vector>\n// std::thread is only mentioned\n')
        self.write("src/net/link.cpp", '#include "os/fd.h"\n#include <boost/asio.hpp>\n#include <thread>\n')
        self.write("include/kvferry/kvferry.h", '#include <vector>\n#include "kvferry/result.h"\n')
        self.write("examples/engine/main.cpp", '#include "kvferry/kvferry.h"\n#include "model.h"\n')
        self.expect()

    def test_a_floor_that_includes_one_above_it_is_named(self):
        self.write("src/core/room.cpp", '#include "net/link.h"\n')
        self.expect("src/core/room.cpp:1: core may not know net")

    def test_siblings_do_not_know_each_other(self):
        self.write("src/net/link.cpp", '\n#include "transport/mover.h"\n')
        self.expect("src/net/link.cpp:2: net may not know transport")

    def test_a_folder_that_no_rule_knows_is_named(self):
        self.write("src/extra/a.cpp", "")
        self.expect("src/extra is no floor")

    def test_public_headers_name_no_library(self):
        self.write("include/kvferry/a.h", "#include <boost/asio.hpp>\n")
        self.write("include/kvferry/b.h", "#include <unistd.h>\n")
        self.expect("include/kvferry/a.h:1", "include/kvferry/b.h:1")

    def test_examples_do_not_look_inside(self):
        self.write("examples/engine/main.cpp", '#include "runtime/manager.h"\n')
        self.expect("examples use the public API alone")

    def test_pure_floors_do_not_read_clocks_or_dice(self):
        self.write("src/core/a.cpp", "auto now = std::chrono::steady_clock::now();\n")
        self.write("src/core/b.cpp", "std::uniform_int_distribution<int> die(1, 6);\n")
        self.write("src/core/c.cpp", "std::unordered_map<int, int> rooms;\n")
        self.write("src/layout/d.cpp", '#include <thread>\nint e() { return std::getenv("X") != nullptr; }\n')
        self.write("src/os/e.cpp", "auto now = std::chrono::steady_clock::now();\n")
        self.expect("layout is pure and may not include <thread>", "layout is pure and reads the environment",
                    "a.cpp:1: core is pure and reads a clock", "b.cpp:1: core is pure and uses a std:: distribution",
                    "c.cpp:1: core is pure and uses a container")

    def test_unfinished_work_is_found_in_comments_too(self):
        self.write("sim/a.cpp", "// TO" + "DO: later\n")
        self.expect("sim/a.cpp:1: unfinished")

    def test_tests_do_not_sleep(self):
        self.write("tests/net/a_test.cpp", "void f() { std::this_thread::sleep_" + "for(1s); }\n")
        self.expect("tests/net/a_test.cpp:1: tests wait")

    def test_a_test_that_is_not_built_is_named(self):
        self.write("tests/net/CMakeLists.txt", "# a_test.cpp is not built\n")
        self.write("tests/net/a_test.cpp", "", listed=False)
        self.expect("tests/net/a_test.cpp:1: not named in tests/net/CMakeLists.txt")

    def test_a_long_file_is_two_ideas(self):
        self.write("src/net/a.cpp", "\n" * 401)
        self.expect("src/net/a.cpp:1: 401 lines")

    def test_the_list_of_long_files_only_shrinks(self):
        self.write("src/net/grown.cpp", "\n" * 451)
        self.write("src/net/kept.cpp", "\n" * 450)
        self.write("src/net/shrunk.cpp", "\n" * 420)
        self.write("src/net/short.cpp", "\n" * 100)
        self.write("scripts/long_files.txt", "# count path\n" + "".join(
            f"450 src/net/{file}.cpp\n" for file in ("grown", "kept", "shrunk", "short")))
        self.expect("grown.cpp:1: 451 lines, at most 450", "shrunk.cpp has 420 lines now",
                    "short.cpp is not long any more")


if __name__ == "__main__":
    unittest.main()
