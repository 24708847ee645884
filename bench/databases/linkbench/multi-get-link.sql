\set id random_zipfian(1, 20000, 1.05)
\set other random(1, 20000)
SELECT id1, id2, data, time FROM link WHERE id1 = :id AND link_type = 1 AND id2 IN (:other, :other + 1, :other + 2);
