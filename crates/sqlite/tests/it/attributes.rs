//! Attributes of a user's database that name what is another user's: a stream of root's database, a
//! socket, a path through a link. Root opens that database. Nothing of root's streams comes into
//! it, and nothing else is asked or entered.

use std::os::unix::fs::{chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use onejournal_testing::is_root;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::common::actor::{give, permit, public_place};
use crate::common::{Place, copy_tree, count, load, told};

const ATTRIBUTE: &str = "user.onejournal";
/// The owner of the database.
const USER: u32 = 65_533;
const THIRD: u32 = 65_534;

/// Its five fields.
fn attribute(path: &Path) -> [String; 5] {
    let mut value = vec![0; 3000];
    let len_bytes = getxattr(path, ATTRIBUTE, value.as_mut_slice()).expect("an attribute");
    let text = str::from_utf8(&value[..len_bytes]).expect("text");
    Vec::from_iter(text.splitn(5, '\n').map(str::to_owned)).try_into().expect("five fields")
}

fn set_attribute(path: &Path, fields: &[String; 5]) {
    let value = fields.join("\n");
    setxattr(path, ATTRIBUTE, value.as_bytes(), XattrFlags::empty()).expect("written");
}

/// The third field of the attribute of a file: which file it is.
fn id(path: &Path) -> String {
    let file = std::fs::File::open(path).expect("there");
    let id = host::FileId::of(file).expect("told").lasting;
    format!("{:032x}", id.expect("its file system says which file it is"))
}

fn has_told(part: &str) -> bool {
    told().iter().any(|text| text.contains(part))
}

/// A database of root, which is open, with two rows. The last row is durable only in its log.
fn roots_database() -> Place {
    load();
    let roots = Place::new(false);
    let connection = roots.wal("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES ('old')").expect("old");
    connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").expect("home");
    connection.execute_batch("INSERT INTO t(v) VALUES ('logged')").expect("logged");
    std::mem::forget(connection);
    roots
}

/// A directory of the user.
fn users_place() -> Place {
    let users = public_place();
    permit(&users.root, 0o711);
    give(&users.root, USER);
    users
}

/// Gives the user a copy of the database, without the last row.
fn give_copy(roots: &Place, users: &Place) {
    std::fs::copy(roots.path("a.db"), users.path("a.db")).expect("database");
    let mut wal = std::fs::read(roots.path("a.db-wal")).expect("WAL");
    wal[32..].fill(0);
    std::fs::write(users.path("a.db-wal"), wal).expect("WAL");
    for name in ["a.db", "a.db-wal"] {
        give(&users.path(name), USER);
    }
}

/// How many records the stream of root's database has.
fn record_count(roots: &Place) -> usize {
    let options = log::Options { memory: roots.memory.clone(), ..log::Options::default() };
    let log = log::Log::open(roots.path(".onejournal"), &options).expect("log");
    let stream = crate::common::stream_of(&log, "a.db");
    stream.read_from(stream.head()).expect("records").count()
}

#[test]
fn regression_a_stream_of_another_database_is_not_brought_into_a_users_database() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    for is_log_named in [false, true] {
        let (roots, users) = (roots_database(), users_place());
        give_copy(&roots, &users);
        let mut fields = attribute(&roots.path("a.db"));
        fields[2] = id(&users.path("a.db"));
        set_attribute(&users.path("a.db"), &fields);
        let before = record_count(&roots);
        let more = match is_log_named {
            true => format!("&log={}", roots.path(".onejournal").display()),
            false => String::new(),
        };
        let connection = users.try_open("a.db", &more).expect("open");
        assert_eq!(count(&connection), 1, "{more}");
        assert_eq!(record_count(&roots), before, "{more}");
        assert!(has_told("which is not that of the file"));
    }
}

#[test]
fn regression_a_copied_stream_of_another_user_is_not_brought_into_a_users_database() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    for has_attribute in [false, true] {
        let (roots, users) = (roots_database(), users_place());
        // The log of the copy is root's, and its database the user's.
        copy_tree(&roots.root, &users.root);
        std::fs::remove_file(users.path("a.db-shm")).expect("index");
        give_copy(&roots, &users);
        if has_attribute {
            set_attribute(&users.path("a.db"), &attribute(&roots.path("a.db")));
        }
        let stream = crate::common::stream_directory(&users, "a.db");
        assert_eq!(count(&users.open("a.db")), 1, "{has_attribute}");
        assert!(users.path(".onejournal").join(&stream).exists(), "{has_attribute}");
        assert!(has_attribute || has_told("commits of another file of this name"));
        // The same is used for a copy that belongs to root.
        let own = public_place();
        copy_tree(&roots.root, &own.root);
        std::fs::remove_file(own.path("a.db-shm")).expect("index");
        assert_eq!(count(&own.open("a.db")), 2);
        assert!(!own.path(".onejournal").join(&stream).exists());
    }
}

/// The user's own log, which names itself well, but through a link and a socket of a third user.
#[test]
fn regression_an_attribute_leads_to_no_link_or_socket_of_a_third_user() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let place = users_place();
    let (link, socket) = (place.path("link"), place.path("third.sock"));
    let more = format!("&log={}", place.path("log").display());
    let connection = place.try_open("a.db", &more).expect("open");
    let table = "PRAGMA journal_mode=WAL; CREATE TABLE t(v); INSERT INTO t VALUES (1)";
    connection.execute_batch(table).expect("table");
    drop(connection);
    give(&place.root, USER);
    let genuine = attribute(&place.path("a.db"));
    let name = |directory: &Path| {
        let mut fields = genuine.clone();
        fields[4] = directory.display().to_string();
        set_attribute(&place.path("a.db"), &fields);
    };
    symlink(&place.root, &link).expect("link");
    lchown(&link, Some(THIRD), Some(THIRD)).expect("given");
    name(&link.join("log"));
    let connection = place.open("a.db");
    assert_eq!(count(&connection), 1);
    drop(connection);
    assert!(has_told("link/log, which this user may not read"), "{:?}", told());
    let _listener = UnixListener::bind(&socket).expect("socket");
    chown(&socket, Some(THIRD), Some(THIRD)).expect("given");
    name(&socket);
    place.try_open("a.db", "").expect_err("refused");
    assert!(has_told("the socket belongs to user 65534"), "{:?}", told());
    assert!(has_told("by the name of its socket (log=SOCKET in the URI)"));
    // Without the third user it is the log.
    std::fs::remove_file(&link).expect("removed");
    symlink(&place.root, &link).expect("link");
    name(&link.join("log"));
    let before = told().len();
    assert_eq!(count(&place.open("a.db")), 1);
    assert_eq!(told().len(), before, "{:?}", told());
}
