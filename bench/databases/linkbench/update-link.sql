\set id random_zipfian(1, 20000, 1.05)
\set now random(1, 2000000000)
UPDATE link SET time = :now, data = repeat('u', 11) WHERE (id1, id2, link_type) IN
    (SELECT id1, id2, link_type FROM link WHERE id1 = :id AND link_type = 1 ORDER BY id2 LIMIT 1);
