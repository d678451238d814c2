"""The SQL of the PostgreSQL store: the tables and functions of a schema, and all queries."""

from typing import Final, NamedTuple

LAYOUT: Final = 2
"""The number of the tables and functions below; a schema with another one is not used."""
BUMP: Final = 1_000_000
"""By how much the revision jumps if the database is not the one of before. It is more than any
server can have lost."""

# `head` is the lock: a transaction locks its row, gives out the next revisions, and unlocks it with
# the commit. So revisions have no gaps, and become visible in their order. Functions lock first and
# compare afterwards: in READ COMMITTED each of their statements sees what was committed before it.
# Sequences cannot do this: their numbers are given out before the order of commits is known.
#
# Values are as wide as objects are; they are not compressed, which would cost more time than the
# rest of a write, and stay in the row up to the size of a page.
_SCHEMA: Final = """
CREATE TABLE {s}.head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), layout integer NOT NULL,
    revision bigint NOT NULL, source text NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE {s}.horizon (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    compacted bigint NOT NULL, cleaned bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE {s}.changes (
    revision bigint PRIMARY KEY, key bytea NOT NULL, created bigint NOT NULL,
    previous bigint NOT NULL, token bigint NOT NULL, value bytea
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE {s}.changes ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE TABLE {s}.current (
    key bytea PRIMARY KEY, revision bigint NOT NULL, created bigint NOT NULL,
    deadline bigint NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX deadlines ON {s}.current (deadline, key) WHERE deadline > 0;

CREATE VIEW {s}.objects AS
    SELECT convert_from(key, 'UTF8') AS key, revision, convert_from(value, 'UTF8') AS value
    FROM {s}.current JOIN {s}.changes USING (key, revision);
COMMENT ON VIEW {s}.objects IS 'The objects of the cluster, for people.';

CREATE FUNCTION {s}.write(
    keys bytea[], vals bytea[], expects bigint[], deadlines bigint[], tokens bigint[],
    guards bytea[], terms bigint[])
RETURNS TABLE (written bigint, born bigint, before bigint, before_born bigint, before_value bytea)
LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
    start bigint;
BEGIN
    SELECT h.revision INTO newest FROM {s}.head h WHERE h.one FOR UPDATE;
    start := newest;
    FOR i IN 1..cardinality(keys) LOOP
        SELECT c.revision, c.created, w.value INTO before, before_born, before_value
            FROM {s}.current c JOIN {s}.changes w ON w.revision = c.revision WHERE c.key = keys[i];
        IF NOT FOUND THEN
            before := 0;
            before_born := 0;
        END IF;
        written := 0;
        born := 0;
        IF before <> expects[i] OR (before = 0 AND vals[i] IS NULL) THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF guards[i] IS NOT NULL AND NOT EXISTS (SELECT FROM {s}.current c
                WHERE c.key = guards[i] AND c.revision = terms[i]) THEN
            written := -1;
            RETURN NEXT;
            CONTINUE;
        END IF;
        newest := newest + 1;
        written := newest;
        born := CASE before WHEN 0 THEN newest ELSE before_born END;
        INSERT INTO {s}.changes VALUES (newest, keys[i], born, before, tokens[i], vals[i]);
        IF vals[i] IS NULL THEN
            DELETE FROM {s}.current c WHERE c.key = keys[i];
        ELSIF before = 0 THEN
            INSERT INTO {s}.current VALUES (keys[i], newest, born, deadlines[i]);
        ELSE
            UPDATE {s}.current c SET revision = newest, deadline = deadlines[i]
                WHERE c.key = keys[i];
        END IF;
        RETURN NEXT;
    END LOOP;
    IF newest > start THEN
        UPDATE {s}.head h SET revision = newest WHERE h.one;
        PERFORM pg_notify('{channel}', newest::text);
    END IF;
END $$;

CREATE FUNCTION {s}.remove(name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT w.written FROM {s}.current c, {s}.write(
        ARRAY[c.key], ARRAY[NULL::bytea], ARRAY[c.revision], ARRAY[0::bigint], ARRAY[0::bigint],
        ARRAY[NULL::bytea], ARRAY[0::bigint]) w
    WHERE c.key = convert_to(name, 'UTF8');
$$;
COMMENT ON FUNCTION {s}.remove IS 'Delete an object, for people: servers of kedge notice it.';

CREATE FUNCTION {s}.sweep(moment bigint, step integer)
RETURNS TABLE (newest bigint, following bigint) LANGUAGE plpgsql AS $$
DECLARE
    due record;
BEGIN
    IF EXISTS (SELECT FROM {s}.current c WHERE c.deadline > 0 AND c.deadline <= moment) THEN
        SELECT h.revision INTO newest FROM {s}.head h WHERE h.one FOR UPDATE;
        FOR due IN
            SELECT c.key, c.revision, c.created FROM {s}.current c
            WHERE c.deadline > 0 AND c.deadline <= moment ORDER BY c.deadline, c.key LIMIT step
        LOOP
            newest := newest + 1;
            INSERT INTO {s}.changes VALUES (newest, due.key, due.created, due.revision, 0, NULL);
            DELETE FROM {s}.current c WHERE c.key = due.key;
        END LOOP;
        UPDATE {s}.head h SET revision = newest WHERE h.one;
        PERFORM pg_notify('{channel}', newest::text);
    END IF;
    SELECT min(c.deadline) INTO following FROM {s}.current c WHERE c.deadline > 0;
    RETURN NEXT;
END $$;

CREATE FUNCTION {s}.compact(target bigint, step integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    since bigint;
    until bigint;
    steps bigint;
BEGIN
    SELECT h.cleaned INTO since FROM {s}.horizon h WHERE h.one FOR UPDATE;
    IF target <= since THEN
        RETURN since;
    END IF;
    SELECT count(*), max(w.revision) INTO steps, until FROM (
        SELECT c.revision FROM {s}.changes c WHERE c.revision > since AND c.revision <= target
        ORDER BY c.revision LIMIT step) w;
    IF steps < step THEN
        until := target;
    END IF;
    DELETE FROM {s}.changes w USING {s}.changes c
        WHERE c.revision > since AND c.revision <= until AND w.revision = c.previous;
    DELETE FROM {s}.changes c WHERE c.revision > since AND c.revision <= until AND c.value IS NULL;
    UPDATE {s}.horizon h SET cleaned = until, compacted = greatest(h.compacted, until) WHERE h.one;
    RETURN until;
END $$;
"""

SESSION: Final = """
SET default_transaction_isolation = 'read committed';
SET enable_seqscan = off;
SET jit = off;
SET statement_timeout = 0;
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';
"""
"""The state of every connection. Each query reads a stretch of an index; without statistics, as in
a new schema, PostgreSQL would rather read the table. Acknowledged writes are on disk, also if the
default of the database is another one."""

_STATE: Final = """SELECT c.key, c.revision, c.created FROM {s}.current c
        WHERE c.key >= $1 AND c.key < $2 AND c.revision <= $3
    UNION ALL SELECT o.key, o.revision, o.created
        FROM {s}.changes c JOIN {s}.changes o ON o.revision = c.previous
        WHERE c.revision > $3 AND c.previous > 0 AND c.previous <= $3
        AND c.key >= $1 AND c.key < $2"""
"""The state at a revision: today's entries if they are that old, else the entry that the first
later change replaced."""
_NOW: Final = """SELECT c.key, c.revision, c.created FROM {s}.current c
        WHERE c.key >= $1 AND c.key < $2 AND $3::bigint = 0"""
_PAGE: Final = """WITH bounds AS (SELECT h.revision AS head, z.compacted
        FROM {s}.head h JOIN {s}.horizon z ON z.one = h.one),
    page AS (SELECT f.key, f.revision, f.created, w.value,
        sum(octet_length(w.value)) OVER (ORDER BY f.key) - octet_length(w.value) AS size
        FROM ({state} ORDER BY key LIMIT $4) f JOIN {s}.changes w ON w.revision = f.revision)
    SELECT bounds.head, bounds.compacted, (SELECT count(*) FROM page),
        page.key, page.value, page.revision, page.created
    FROM bounds LEFT JOIN page ON page.size <= $5 ORDER BY page.key"""

_EVENTS: Final = """SELECT b.head, b.compacted, c.key, c.revision, c.created, c.value, c.previous,
        o.created AS old_created, o.value AS old_value, c.token
    FROM (SELECT h.revision AS head, z.compacted
        FROM {s}.head h JOIN {s}.horizon z ON z.one = h.one) b
    LEFT JOIN ({found}) f ON true
    LEFT JOIN {s}.changes c ON c.revision = f.revision
    LEFT JOIN {s}.changes o ON o.revision = c.previous AND c.previous > 0
    ORDER BY f.revision"""
_REPLAYED: Final = """SELECT n.revision FROM (
        SELECT r.revision, sum(r.size) OVER (ORDER BY r.revision) - r.size AS before
        FROM (SELECT w.revision, coalesce(octet_length(w.value), 0) AS size FROM {s}.changes w
            WHERE w.revision > $1 AND w.revision <= $2 AND w.key >= $3 AND w.key < $4
            ORDER BY w.revision LIMIT $5) r) n
        WHERE n.before <= $6"""
_BY_TOKEN: Final = """SELECT w.revision FROM {s}.changes w
        WHERE w.revision > $1 AND w.token = ANY($2)"""


class Statements(NamedTuple):
    """All queries, for one schema."""

    exists: str
    """Whether the schema and its tables exist, and whether it has tables of others."""
    describe: str
    """Which database this is, and the row of the head."""
    channel: str
    """The channel of notifications."""
    create: str
    adopt: str
    """Note that the database is another one than before, and end all history."""
    write: str
    sweep: str
    compact: str
    get: str
    page_now: str
    page_at: str
    count_at: str
    replay: str
    by_token: str
    head: str
    settle: str
    """Commit nothing, but as durably as a write."""


def statements(schema: str) -> Statements:
    """Return the queries for a schema, whose name was checked."""
    quoted, channel = f'"{schema}"', f"kedge:{schema}"[:63]

    def fill(text: str) -> str:
        return text.replace("{s}", quoted).replace("{channel}", channel)

    def events(found: str) -> str:
        return fill(_EVENTS.replace("{found}", found))

    return Statements(
        exists=fill(
            f"""SELECT to_regnamespace('{quoted}') IS NOT NULL AS schema,
            to_regclass('{{s}}.head') IS NOT NULL AND to_regclass('{{s}}.horizon') IS NOT NULL
                AS tables,
            EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('{quoted}'))
                AS relations"""
        ),
        # A restored database, a promoted standby, and a schema that was made again differ here.
        describe=fill(
            """SELECT (SELECT system_identifier FROM pg_control_system()) || '/'
                || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/'
                || to_regclass('{s}.head')::oid AS found,
            h.layout, h.revision, h.source FROM {s}.head h"""
        ),
        channel=channel,
        create=fill(_SCHEMA)
        + fill(
            f"""INSERT INTO {{s}}.head VALUES (true, {LAYOUT}, 1, '');
            INSERT INTO {{s}}.horizon VALUES (true, 0, 0);"""
        ),
        adopt=fill(
            """WITH moved AS (UPDATE {s}.head
                SET source = $1, revision = CASE source WHEN '' THEN revision ELSE revision + $2 END
                WHERE source <> $1 RETURNING revision)
            UPDATE {s}.horizon h SET compacted = moved.revision FROM moved
                WHERE moved.revision > $2"""
        ),
        write=fill("SELECT * FROM {s}.write($1, $2, $3, $4, $5, $6, $7)"),
        sweep=fill("SELECT newest, following FROM {s}.sweep($1, $2)"),
        compact=fill("SELECT {s}.compact($1, $2)"),
        get=fill(
            """SELECT w.key, w.value, w.revision, w.created
            FROM {s}.current c JOIN {s}.changes w ON w.revision = c.revision WHERE c.key = $1"""
        ),
        page_now=fill(_PAGE.replace("{state}", _NOW)),
        page_at=fill(_PAGE.replace("{state}", _STATE)),
        count_at=fill(f"SELECT count(*) FROM ({_STATE}) n"),
        replay=events(_REPLAYED),
        by_token=events(_BY_TOKEN),
        head=fill("SELECT revision FROM {s}.head"),
        settle=fill("UPDATE {s}.head SET layout = layout"),
    )
