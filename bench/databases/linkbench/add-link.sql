\set id random_zipfian(1, 20000, 1.05)
\set other random(1, 20000)
\set now random(1, 2000000000)
BEGIN;
WITH added AS (INSERT INTO link VALUES (:id, :other, 1, 1, repeat('l', 11), :now) ON CONFLICT DO NOTHING RETURNING 1)
    INSERT INTO link_count SELECT :id, 1, 1 FROM added ON CONFLICT (id, link_type) DO UPDATE SET count = link_count.count + 1;
END;
