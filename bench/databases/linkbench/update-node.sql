\set id random_zipfian(1, 20000, 1.05)
UPDATE node SET version = version + 1, data = repeat('u', 128) WHERE id = :id;
