INSERT INTO node (type, version, time, data) VALUES (2048, 0, 0, repeat('a', 128));
