# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_onejournal_global_optspecs
    string join \n h/help V/version
end

function __fish_onejournal_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_onejournal_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_onejournal_using_subcommand
    set -l cmd (__fish_onejournal_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c onejournal -n "__fish_onejournal_needs_command" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_needs_command" -s V -l version -d 'Print version'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "mkfs" -d 'Make an ext4 volume (runs mke2fs with the block and inode size OneJournal needs)'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "mount" -d 'Mount a volume; returns when it is ready'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "umount" -d 'Unmount a volume; returns when everything is home, or says what keeps it or that it was not closed'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "detach" -d 'Take the mounts of a device off in the mount namespace on standard input (internal)'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "guard" -d 'Abort the connection of a file system to its daemon when that dies (internal)'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "ask" -d 'Answer each line of standard input with what a mount says (internal)'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "fsck" -d 'Recover a volume, then check it with e2fsck'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "dump" -d 'Print the journal of a volume; changes nothing'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "stat" -d 'Print the counters of a mounted volume, or of a file on it'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "probe" -d 'Measure a disk, and say whether it is good enough for a database'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "ls" -d 'List the mounted volumes and the logs in use of this machine'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "top" -d 'Show what volumes and logs do, again and again'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "set-journal" -d 'Give a volume a journal of its own on another device, another one, or none (--internal)'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "set-mode" -d 'Set where and in which form the data of files are written (docs/reference/modes.md), or declare that they need atomic writes (docs/reference/semantics.md, "Untorn writes")'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "get-mode" -d 'Print the data mode of files, and what they are declared to need'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "logd" -d 'Serve a log directory to other processes; returns on SIGTERM'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "log" -d 'Look at the streams of a log'
complete -c onejournal -n "__fish_onejournal_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onejournal -n "__fish_onejournal_using_subcommand mkfs" -l size -d 'Size of the volume (e.g. 256M, 4G): the file is made, or set to this size' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand mkfs" -l journal -d 'Block device for the journal, in place of the volume, which finds it there; or a file (`mount -o journal=PATH`)' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand mkfs" -l journal-size -d 'Size of the journal, at least 4M. In the volume (default: what mke2fs chooses), or with --journal there (default: all of the device, at most 1G; a file that does not exist is made)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand mkfs" -s L -l label -d 'Label of the volume (at most 16 bytes)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand mkfs" -l force -d 'Overwrite what the target holds, and with --journal what that device holds'
complete -c onejournal -n "__fish_onejournal_using_subcommand mkfs" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand mount" -s o -l options -d 'Mount options, separated by commas; `-o help` shows them' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand mount" -s f -l foreground -d 'Stay in the foreground; messages go to standard error instead of syslog'
complete -c onejournal -n "__fish_onejournal_using_subcommand mount" -l announce -d 'Tell the parent process on standard output that the mount is ready (internal)'
complete -c onejournal -n "__fish_onejournal_using_subcommand mount" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand umount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand detach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand guard" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand ask" -l files -d 'With the files for which most was written'
complete -c onejournal -n "__fish_onejournal_using_subcommand ask" -l of-file -d 'Of the file, unless it is a directory'
complete -c onejournal -n "__fish_onejournal_using_subcommand ask" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -l journal -d 'The journal, if it is a file or NVRAM (one on a block device is found)' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -s n -d 'Change nothing: say what recovery would do, check what can be checked'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -s p -s a -d 'Recover; check only a volume that is marked as damaged (for boots; without it all is checked)'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -s y -d 'Answer yes to all questions of e2fsck (default: repair only what is safe)'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -l discard-damaged -d 'Where the journal is damaged, give up the history after the damage'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -l takeover -d 'Continue although another machine has not closed the volume: it must not be mounted there'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -l journal-lost -d 'The journal is lost: let e2fsck repair the volume without its newest changes'
complete -c onejournal -n "__fish_onejournal_using_subcommand fsck" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand dump" -l journal -d 'The journal, if it is a file or NVRAM (one on a block device is found)' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand dump" -l json -d 'As JSON'
complete -c onejournal -n "__fish_onejournal_using_subcommand dump" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand stat" -l watch -d 'Print a line with the volume\'s rates at this interval in seconds (default 1), until interrupted' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand stat" -l all -d 'Every counter by its name in --json, without units'
complete -c onejournal -n "__fish_onejournal_using_subcommand stat" -l json -d 'As JSON; with --watch, an object on each line'
complete -c onejournal -n "__fish_onejournal_using_subcommand stat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l seconds -d 'Measure for about this long' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l size -d 'Size of the file that is written, or of the part of a device (4M to 16G)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l for -d 'Exit with 0 if the disk is suitable for this program, with 1 if it is not' -r -f -a "etcd\t''
postgresql\t''
sqlite\t''"
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l interval -d 'With --watch: seconds from one line to the next' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l count -d 'With --watch: end after this number of intervals' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l tbw -d 'With --watch: the rated endurance of the disk in terabytes written, as its data sheet says' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l destroy -d 'Overwrite the beginning of the block device'
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l force -d 'With --destroy: also if the device is not empty'
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l protected-cache -d 'The disk\'s cache survives a power cut, as its data sheet says: flushes may cost nothing'
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l json -d 'As JSON; with --watch, an object on each line'
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -l watch -d 'Write nothing: print how much is written to the disk, until interrupted'
complete -c onejournal -n "__fish_onejournal_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand ls" -l json -d 'As JSON: an object with `mounts`, `detached` and `logs`'
complete -c onejournal -n "__fish_onejournal_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand top" -s n -l count -d 'End after this number of samples' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand top" -s d -l delay -d 'Seconds from one sample to the next' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand top" -s b -l batch -d 'Print text, without a terminal and without keys'
complete -c onejournal -n "__fish_onejournal_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand set-journal" -l journal-size -d 'Size of the journal (default: all of the device, at most 1G; a file that does not exist is made)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand set-journal" -l internal -d 'Use the journal in the volume from now on'
complete -c onejournal -n "__fish_onejournal_using_subcommand set-journal" -l force -d 'Overwrite what the device holds'
complete -c onejournal -n "__fish_onejournal_using_subcommand set-journal" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand set-mode" -l atomic -d 'Declare that aligned writes of up to SIZE bytes (64K) must be atomic' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand set-mode" -l no-atomic -d 'Take that declaration off'
complete -c onejournal -n "__fish_onejournal_using_subcommand set-mode" -l forget-atomic -d 'Let the volume forget that it has had declared files; the owner of its root directory may'
complete -c onejournal -n "__fish_onejournal_using_subcommand set-mode" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand get-mode" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l dir -d 'Directory of the log; made when there is none' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l listen -d 'Socket to listen at, named socket, NAME.sock or NAME.socket (default: DIR/socket)' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l mode -d 'Who may connect, as the permissions of the socket' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l nvram -d 'Directory on NVRAM for the lanes of a new log' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l durability -d 'What that NVRAM survives, if it is not a power cut: process, reboot or power' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l pool -d 'Size of the pool of a new log, shared by all lanes (default: 64M)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l segment -d 'Size of a log file of a new log, at most (default: 16M)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l memory -d 'Directory for the memory that processes share, when there is none yet: a tmpfs' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l quota -d 'Bytes of records that a new stream may keep (default: any number)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l connections -d 'Connections of all users at a time (default: 1024)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l user-connections -d 'Connections of each user at a time (default: 256)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l user-chunks -d 'Chunks that each user may hold at a time (default: three quarters of the pool)' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -l metrics -d 'Prometheus text at http://ADDRESS:PORT/metrics; loopback addresses only' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand logd" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "ls" -d 'Print the names of the streams'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "cat" -d 'Print the records of a stream, each followed by a newline'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "tail" -d 'Print the last records of a stream'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "stat" -d 'Print the counters of the log, or of a stream'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "rm" -d 'Remove a stream and all it holds'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "discard-damaged" -d 'Give up the damaged part of a stream and everything after it, so that it can be written again'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "permit" -d 'Let a group use a stream through the daemon'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "gc" -d 'Bring home what killed processes left in shared memory, and remove it'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and not __fish_seen_subcommand_from ls cat tail stat rm discard-damaged permit gc help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from ls" -l dir -d 'Directory of a log that no daemon serves' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from ls" -l socket -d 'Socket of the daemon' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from ls" -l memory -d 'Directory for the memory that processes share, when there is none yet [default: /dev/shm]' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from ls" -l json -d 'With their counters, as one JSON object on each line'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from cat" -l dir -d 'Directory of a log that no daemon serves' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from cat" -l socket -d 'Socket of the daemon' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from cat" -l memory -d 'Directory for the memory that processes share, when there is none yet [default: /dev/shm]' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from cat" -l from -d 'Begin with the record at this LSN' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from cat" -l json -d 'As one JSON object on each line: lsn, usn, and text or hex'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from cat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -l dir -d 'Directory of a log that no daemon serves' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -l socket -d 'Socket of the daemon' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -l memory -d 'Directory for the memory that processes share, when there is none yet [default: /dev/shm]' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -s n -d 'Number of records' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -l json -d 'One JSON object on each line, as `cat --json`'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -s f -l follow -d 'Then print records as they are appended, until interrupted'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from tail" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from stat" -l dir -d 'Directory of a log that no daemon serves' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from stat" -l socket -d 'Socket of the daemon' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from stat" -l memory -d 'Directory for the memory that processes share, when there is none yet [default: /dev/shm]' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from stat" -l json -d 'As JSON'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from rm" -l dir -d 'Directory of a log that no daemon serves' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from rm" -l socket -d 'Socket of the daemon' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from rm" -l memory -d 'Directory for the memory that processes share, when there is none yet [default: /dev/shm]' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from discard-damaged" -l dir -d 'Directory of a log that no daemon serves' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from discard-damaged" -l socket -d 'Socket of the daemon' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from discard-damaged" -l memory -d 'Directory for the memory that processes share, when there is none yet [default: /dev/shm]' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from discard-damaged" -s h -l help -d 'Print help'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from permit" -l dir -d 'Directory of the log' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from permit" -l group -d 'Name or number of the group' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from permit" -l mode -d 'Who may read and write: owner, group and others, as the permissions of a file' -r
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from permit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from gc" -l memory -d 'Where the logs have their shared memory' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from gc" -l force -d 'Remove this directory whatever it holds, if no process uses it' -r -F
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from gc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "ls" -d 'Print the names of the streams'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "cat" -d 'Print the records of a stream, each followed by a newline'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "tail" -d 'Print the last records of a stream'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Print the counters of the log, or of a stream'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove a stream and all it holds'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "discard-damaged" -d 'Give up the damaged part of a stream and everything after it, so that it can be written again'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "permit" -d 'Let a group use a stream through the daemon'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "gc" -d 'Bring home what killed processes left in shared memory, and remove it'
complete -c onejournal -n "__fish_onejournal_using_subcommand log; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "mkfs" -d 'Make an ext4 volume (runs mke2fs with the block and inode size OneJournal needs)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "mount" -d 'Mount a volume; returns when it is ready'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "umount" -d 'Unmount a volume; returns when everything is home, or says what keeps it or that it was not closed'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "detach" -d 'Take the mounts of a device off in the mount namespace on standard input (internal)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "guard" -d 'Abort the connection of a file system to its daemon when that dies (internal)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "ask" -d 'Answer each line of standard input with what a mount says (internal)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "fsck" -d 'Recover a volume, then check it with e2fsck'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "dump" -d 'Print the journal of a volume; changes nothing'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "stat" -d 'Print the counters of a mounted volume, or of a file on it'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "probe" -d 'Measure a disk, and say whether it is good enough for a database'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "ls" -d 'List the mounted volumes and the logs in use of this machine'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "top" -d 'Show what volumes and logs do, again and again'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "set-journal" -d 'Give a volume a journal of its own on another device, another one, or none (--internal)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "set-mode" -d 'Set where and in which form the data of files are written (docs/reference/modes.md), or declare that they need atomic writes (docs/reference/semantics.md, "Untorn writes")'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "get-mode" -d 'Print the data mode of files, and what they are declared to need'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "logd" -d 'Serve a log directory to other processes; returns on SIGTERM'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "log" -d 'Look at the streams of a log'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount detach guard ask fsck dump stat probe ls top set-journal set-mode get-mode logd log help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "ls" -d 'Print the names of the streams'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "cat" -d 'Print the records of a stream, each followed by a newline'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "tail" -d 'Print the last records of a stream'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "stat" -d 'Print the counters of the log, or of a stream'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "rm" -d 'Remove a stream and all it holds'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "discard-damaged" -d 'Give up the damaged part of a stream and everything after it, so that it can be written again'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "permit" -d 'Let a group use a stream through the daemon'
complete -c onejournal -n "__fish_onejournal_using_subcommand help; and __fish_seen_subcommand_from log" -f -a "gc" -d 'Bring home what killed processes left in shared memory, and remove it'
