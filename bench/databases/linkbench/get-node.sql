\set id random_zipfian(1, 20000, 1.05)
SELECT id, type, version, time, data FROM node WHERE id = :id;
