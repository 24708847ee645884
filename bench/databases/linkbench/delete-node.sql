\set other random(1, 20000)
DELETE FROM node WHERE id = :other;
