# Runs a suite of SQLite's own tests, with the extension as the default VFS if one is named.
#
#   testfixture run.tcl TESTDIR PERMUTATION [--extension LIBRARY] [FILE.test ...]
#
# PERMUTATION: `veryquick`, or `atomic-batch-write`, which is SQLite's own choice of the same files
# for systems on which no journal file is written.
#
# TESTDIR is the folder `test` of SQLite's source. Databases are made in the working directory. With
# files named, only these of the suite are run. SQLite makes its own VFS the default again whenever
# a test file shuts it down and starts it, so the extension is made the default before each file and
# after each start.

set testdir [file normalize [lindex $argv 0]]
set permutation [lindex $argv 1]
set arguments [lrange $argv 2 end]
set extension {}
if {[lindex $arguments 0] eq "--extension"} {
    set extension [file normalize [lindex $arguments 1]]
    set arguments [lrange $arguments 2 end]
}
set argv0 [file join $testdir veryquick.test]
set argv {}
source [file join $testdir permutations.test]

# What a test file's interpreter runs before the file.
set preamble [string map [list LIBRARY [list $extension]] {
    proc make_extension_default {} {
        sqlite3 loader :memory: -vfs unix
        sqlite3_enable_load_extension loader 1
        loader eval "SELECT load_extension('LIBRARY', 'sqlite3_onejournal_default_init')"
        loader close
    }
    rename sqlite3_initialize sqlite3_initialize_plain
    proc sqlite3_initialize {} {
        set result [sqlite3_initialize_plain]
        make_extension_default
        return $result
    }
    make_extension_default
}]

if {$extension ne {}} {
    rename slave_test_script slave_test_script_plain
    proc slave_test_script {script} {
        slave_test_script_plain "$::preamble\n$script"
    }
}

# Without what the permutation checks before each file: an empty database says nothing about batches
# yet.
array set specification $::testspec($permutation)
set files $specification(-files)
if {[llength $arguments] > 0} {
    set files [lmap file $files {
        if {[file tail $file] ni $arguments} continue
        set file
    }]
}
run_tests $permutation -files $files
finish_test
