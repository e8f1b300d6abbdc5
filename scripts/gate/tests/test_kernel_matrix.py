"""scripts/kernel-matrix-check: what needs no kernel to be booted."""

import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "kernel-matrix-check"
LOADER = importlib.machinery.SourceFileLoader("kernel_matrix_check", str(SCRIPT))
CHECK = importlib.util.module_from_spec(
    importlib.util.spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(CHECK)

PAGE = """
| call | data | 6.1 | 7.2 |
|---|---|---|---|
| `nothing` | all | no | no |
| `sync` | all | no | yes |
| `commit=1` | all | perhaps | perhaps |

| option | of | 6.1 | 7.2 |
|---|---|---|---|
| `lazytime` | image | yes | no |

| since | what | on an older kernel | tried as |
|---|---|---|---|
| Linux 7.0 | a fact | none | `a-fact` |
"""
LOG = "row: sync written: {sync} of 3\nrow: commit=1 written: {commit} of 3\nfact: a-fact: {fact}\n"


def differences(version, sync, commit, fact):
    log = LOG.format(sync=sync, commit=commit, fact=fact)
    return list(CHECK.differences(PAGE, version, log))


class Results(unittest.TestCase):
    def test_results_like_those_of_the_page_pass(self):
        self.assertEqual(differences("7.2", 3, 3, "yes"), [])
        self.assertEqual(differences("6.1", 2, 1, "no"), [])

    def test_other_results_are_found(self):
        self.assertEqual(len(differences("7.2", 2, 0, "yes")), 1)
        self.assertEqual(len(differences("6.1", 3, 0, "no")), 1)
        self.assertEqual(len(differences("6.1", 0, 0, "yes")), 1)

    def test_a_kernel_without_a_column_has_no_results(self):
        self.assertEqual(len(differences("5.10", 3, 3, "no")), 1)


class Versions(unittest.TestCase):
    def test_each_version_that_a_page_names_has_a_row(self):
        text = pathlib.Path(CHECK.PAGE).read_text(encoding="utf-8")
        self.assertEqual(list(CHECK.versions_without_a_row(text)), [])

    def test_each_page_for_users_that_names_a_version_is_linked_from_a_row(self):
        text = pathlib.Path(CHECK.PAGE).read_text(encoding="utf-8")
        self.assertEqual(list(CHECK.sentences_without_a_row(text, CHECK.files(CHECK.USERS))), [])

    def test_a_page_without_a_link_from_a_row_of_its_version_is_found(self):
        row = "| Linux 6.9 | a fact | [none](limits.md#times) | `a-fact` |\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            path.write_text("Measured on Linux 6.8. Since Linux 6.9 all is well.", encoding="utf-8")
            found = list(CHECK.sentences_without_a_row(row, [path]))
            self.assertEqual(len(found), 1)
            self.assertIn("Linux 6.9", found[0])
            row = row.replace("limits.md", str(path))
            self.assertEqual(list(CHECK.sentences_without_a_row(row, [path])), [])

    def test_versions_in_sentences_are_found(self):
        text = "Linux 6.9 has it. On 7.2 it waits, before 5.14 not. 6.5 ms; Linux 6.1.2."
        self.assertEqual(CHECK.NAMED.findall(text), ["6.9", "7.2", "5.14"])

    def test_a_version_without_a_row_is_found(self):
        self.assertNotEqual(list(CHECK.versions_without_a_row(PAGE)), [])
