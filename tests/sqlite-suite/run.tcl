# Runs SQLite's own `veryquick` suite, with the extension as the default VFS if one is named.
#
#   testfixture run.tcl TESTDIR [--extension LIBRARY] [FILE.test ...]
#
# TESTDIR is the folder `test` of SQLite's source. Databases are made in the working directory. With files
# named, these are run instead of the suite. SQLite makes its own VFS the default again when a test file
# shuts it down and starts it, so the extension is made the default before each file.

set testdir [file normalize [lindex $argv 0]]
set arguments [lrange $argv 1 end]
set extension {}
if {[lindex $arguments 0] eq "--extension"} {
    set extension [file normalize [lindex $arguments 1]]
    set arguments [lrange $arguments 2 end]
}
set argv0 [file join $testdir veryquick.test]
set argv {}
source [file join $testdir permutations.test]

# Makes the extension's VFS the default of this process.
proc make_extension_default {} {
    sqlite3 loader :memory: -vfs unix
    sqlite3_enable_load_extension loader 1
    loader eval {SELECT load_extension($::extension, 'sqlite3_onejournal_default_init')}
    loader close
}

if {$extension ne {}} {
    rename slave_test_script slave_test_script_plain
    proc slave_test_script {script} {
        make_extension_default
        slave_test_script_plain $script
    }
}

if {[llength $arguments] > 0} {
    run_tests named -files $arguments
} else {
    run_test_suite veryquick
}
finish_test
