\set id random_zipfian(1, 20000, 1.05)
BEGIN;
WITH gone AS (DELETE FROM link WHERE (id1, id2, link_type) IN
        (SELECT id1, id2, link_type FROM link WHERE id1 = :id AND link_type = 1 ORDER BY id2 LIMIT 1) RETURNING 1)
    UPDATE link_count SET count = count - 1 WHERE id = :id AND link_type = 1 AND EXISTS (SELECT FROM gone);
END;
