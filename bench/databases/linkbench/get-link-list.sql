\set id random_zipfian(1, 20000, 1.05)
SELECT id1, id2, data, time FROM link WHERE id1 = :id AND link_type = 1 AND visibility = 1 ORDER BY time DESC LIMIT 10000;
