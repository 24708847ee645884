-- Nodes and links as LinkBench has them, less what its queries don't touch.
CREATE TABLE node (id bigserial PRIMARY KEY, type int NOT NULL, version bigint NOT NULL, time int NOT NULL, data text NOT NULL);
CREATE TABLE link (id1 bigint, id2 bigint, link_type int, visibility int NOT NULL, data text NOT NULL, time bigint NOT NULL,
    PRIMARY KEY (link_type, id1, id2));
CREATE INDEX link_recent ON link (id1, link_type, visibility, time, id2, data);
CREATE TABLE link_count (id bigint, link_type int, count int NOT NULL, PRIMARY KEY (id, link_type));
INSERT INTO node (type, version, time, data) SELECT 2048, 0, 0, repeat('n', 128) FROM generate_series(1, 20000);
INSERT INTO link SELECT n, 1 + (n * 7919 + k * 104729) % 20000, 1, 1, repeat('l', 11), n FROM generate_series(1, 20000) n, generate_series(1, 3) k
    ON CONFLICT DO NOTHING;
INSERT INTO link_count SELECT id1, 1, count(*) FROM link GROUP BY id1;
ANALYZE
