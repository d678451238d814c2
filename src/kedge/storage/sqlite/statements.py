"""The SQL of the SQLite store: its tables and all its queries."""

LAYOUT = 1
"""The number of the tables below; a file with another one is not opened."""
APPLICATION = 0x6B656467
"""Tells a kedge store from other SQLite files ("kedg")."""

# The log of changes is narrow and the values stand apart, so that walking history does not read
# them. `writes` is the only way in, hence no change without its value and its current row.
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE horizon (compacted INTEGER NOT NULL);
INSERT INTO horizon VALUES (0);
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY, key TEXT NOT NULL, created INTEGER NOT NULL,
    previous INTEGER NOT NULL, deleted INTEGER NOT NULL);
CREATE TABLE contents (revision INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE current (
    key TEXT PRIMARY KEY, revision INTEGER NOT NULL, created INTEGER NOT NULL,
    deadline INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX deadlines ON current (deadline) WHERE deadline > 0;
CREATE VIEW writes AS
    SELECT revision, key, created, previous, deleted, value, 0 AS deadline
    FROM changes JOIN contents USING (revision);
CREATE TRIGGER put INSTEAD OF INSERT ON writes WHEN NOT NEW.deleted BEGIN
    INSERT INTO changes VALUES (NEW.revision, NEW.key, NEW.created, NEW.previous, 0);
    INSERT INTO contents VALUES (NEW.revision, NEW.value);
    INSERT OR REPLACE INTO current VALUES (NEW.key, NEW.revision, NEW.created, NEW.deadline);
END;
CREATE TRIGGER remove INSTEAD OF INSERT ON writes WHEN NEW.deleted BEGIN
    INSERT INTO changes VALUES (NEW.revision, NEW.key, NEW.created, NEW.previous, 1);
    DELETE FROM current WHERE key = NEW.key;
END;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {LAYOUT};
COMMIT;
"""

HEAD = "SELECT max(coalesce((SELECT max(revision) FROM changes), 0), compacted) FROM horizon"
COMPACTED = "SELECT compacted FROM horizon"

# The state at a revision: today's entries if they are that old, else the entry that the first later
# change replaced. It walks only the changes since, so it needs no index on (key, revision).
STATE = """SELECT key, revision, created FROM current
        WHERE key >= :first AND key < :end AND revision <= :at
    UNION ALL SELECT old.key, old.revision, old.created
        FROM changes JOIN changes AS old ON old.revision = changes.previous
        WHERE changes.revision > :at AND changes.previous <= :at
        AND changes.key >= :first AND changes.key < :end"""
LIST = f"""SELECT key, value, revision, created
    FROM ({STATE} ORDER BY key LIMIT :limit) JOIN contents USING (revision)
    ORDER BY key"""
COUNT = f"SELECT count(*) FROM ({STATE})"

REPLAY = """SELECT changes.key, changes.revision, changes.created, changes.deleted, new.value,
        changes.previous, old.created, replaced.value
    FROM changes LEFT JOIN contents AS new ON new.revision = changes.revision
    LEFT JOIN changes AS old ON old.revision = changes.previous
    LEFT JOIN contents AS replaced ON replaced.revision = changes.previous
    WHERE changes.revision > :since AND changes.revision <= :until
    AND changes.key >= :first AND changes.key < :end
    ORDER BY changes.revision LIMIT :limit"""

DUE = "SELECT key FROM current WHERE deadline > 0 AND deadline <= ? ORDER BY deadline, key LIMIT ?"
NEXT_DEADLINE = "SELECT min(deadline) FROM current WHERE deadline > 0"

# A change makes what it replaced superfluous, and a deletion itself as well.
COMPACT = (
    """DELETE FROM contents WHERE revision IN
        (SELECT previous FROM changes WHERE revision > :since AND revision <= :until)""",
    """DELETE FROM changes WHERE revision IN
        (SELECT previous FROM changes WHERE revision > :since AND revision <= :until
        UNION ALL SELECT revision FROM changes
        WHERE revision > :since AND revision <= :until AND deleted)""",
    "UPDATE horizon SET compacted = :until",
)

# Every statement lets go of the interpreter lock and has to win it back from a busy event loop,
# which takes it milliseconds: a group is looked up in one statement and inserted in another.
MOST = 64
"""Keys or rows in one statement; connections remember as many statements of either sort."""
LOOKUPS = [
    "SELECT key, value, revision, created FROM current JOIN contents USING (revision)"
    f" WHERE key IN ({', '.join('?' * size)})"
    for size in range(MOST + 1)
]
"""By the number of keys."""
INSERTS = [
    "INSERT INTO writes VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * size)
    for size in range(MOST + 1)
]
"""By the number of rows."""
