//! RocksDB, through the C interface of its library and Python's `ctypes`.
//!
//! A database belongs to one process, so each session is a process with a database of its own. A
//! transaction is a batch that adds a record and counts the records. The memory table is as small
//! as RocksDB allows and the records are compacted often, so that it writes new tables and removes
//! logs all the time.

use std::io;
use std::process::Command;

use super::load::{Program, count_printed};
use super::{Engine, Place, SESSION_COUNT_MAX, Session};
use crate::command::{outcome, run};

const PYTHON: &str = "/usr/bin/python3";
/// Finds the library of any version. Functions of `rocksdb/c.h`, in the order of their use.
const LIBRARY: &str = r#"
import ctypes, ctypes.util, sys
name = ctypes.util.find_library("rocksdb")
if name is None:
    sys.exit("the library of RocksDB is not installed")
library = ctypes.CDLL(name)
pointer, size = ctypes.c_void_p, ctypes.c_size_t
def function(name, result, *arguments):
    found = getattr(library, "rocksdb_" + name)
    found.restype, found.argtypes = result, arguments
    return found
def checked(function, *arguments):
    error = ctypes.c_char_p()
    result = function(*arguments, ctypes.byref(error))
    if error.value is not None:
        sys.exit(error.value.decode(errors="replace"))
    return result
errors = ctypes.POINTER(ctypes.c_char_p)
def open_database(path):
    options = function("options_create", pointer)()
    function("options_set_create_if_missing", None, pointer, ctypes.c_ubyte)(options, 1)
    function("options_set_paranoid_checks", None, pointer, ctypes.c_ubyte)(options, 1)
    function("options_set_write_buffer_size", None, pointer, size)(options, 64 << 10)
    function("options_set_level0_file_num_compaction_trigger", None, pointer, ctypes.c_int)(options, 2)
    return checked(function("open", pointer, pointer, ctypes.c_char_p, errors), options, path.encode())
"#;
/// A line is the number of a record and the record.
const SESSION: &str = r#"
database = open_database(sys.argv[1])
options = function("writeoptions_create", pointer)()
function("writeoptions_set_sync", None, pointer, ctypes.c_ubyte)(options, 1)
batch = function("writebatch_create", pointer)()
put = function("writebatch_put", None, pointer, ctypes.c_char_p, size, ctypes.c_char_p, size)
clear = function("writebatch_clear", None, pointer)
write = function("write", None, pointer, pointer, pointer, errors)
for line in sys.stdin:
    number, record = line.encode().split()
    for key, value in ((number.zfill(6), record), (b"total", number)):
        put(batch, key, len(key), value, len(value))
    checked(write, database, options, batch)
    clear(batch)
    print("done", number.decode(), flush=True)
"#;
/// Prints the total, then the records. Every checksum is verified.
const READ: &str = r#"
database = open_database(sys.argv[1])
options = function("readoptions_create", pointer)()
function("readoptions_set_verify_checksums", None, pointer, ctypes.c_ubyte)(options, 1)
iterator = function("create_iterator", pointer, pointer, pointer)(database, options)
def of(name):
    part = function("iter_" + name, pointer, pointer, ctypes.POINTER(size))
    def read():
        length = size()
        return ctypes.string_at(part(iterator, ctypes.byref(length)), length.value)
    return read
key, value = of("key"), of("value")
is_valid, following = function("iter_valid", ctypes.c_ubyte, pointer), function("iter_next", None, pointer)
function("iter_seek_to_first", None, pointer)(iterator)
total, records = "", []
while is_valid(iterator):
    if key() == b"total":
        total = value().decode()
    else:
        records.append(value().decode())
    following(iterator)
checked(function("iter_get_error", None, pointer, errors), iterator)
function("iter_destroy", None, pointer)(iterator)
function("close", None, pointer)(database)
print("\n".join([total] + records))
"#;

/// RocksDB with synchronous writes.
#[derive(Debug)]
pub struct RocksDb;

impl Engine for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn obstacle(&self) -> Option<String> {
        match outcome(Command::new(PYTHON).args(["-I", "-c", LIBRARY])) {
            Ok((0, _)) => None,
            Ok((_, text)) | Err(text) => Some(format!("needs python3 and librocksdb: {text}")),
        }
    }

    fn make(&self, place: &Place) -> Result<(), String> {
        (0..SESSION_COUNT_MAX).try_for_each(|actor| run(&mut python(place, READ, actor)).map(drop))
    }

    fn open(&self, place: &Place, actor: usize) -> io::Result<Box<dyn Session>> {
        Program::start(python(place, SESSION, actor))
    }

    fn count_all(&self, place: &Place, session_count: usize) -> Result<Vec<u64>, String> {
        let count = |actor| count_printed(actor, &mut python(place, READ, actor));
        (0..session_count).map(count).collect()
    }

    fn is_torn_page(&self, _failure: &str) -> bool {
        false // It never overwrites what it has written.
    }
}

/// Runs `script` with the database of a session.
fn python(place: &Place, script: &str, actor: usize) -> Command {
    let mut python = place.program(PYTHON);
    python.args(["-I", "-c", &format!("{LIBRARY}{script}")]);
    python.arg(place.data.join(format!("database{actor}")));
    python
}
