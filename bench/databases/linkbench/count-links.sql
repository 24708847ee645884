\set id random_zipfian(1, 20000, 1.05)
SELECT count FROM link_count WHERE id = :id AND link_type = 1;
