-- Demo data: every parcel, person and place in it is invented.
CREATE TABLE about (label TEXT NOT NULL) STRICT;
INSERT INTO about VALUES ('demo data, invented');

CREATE TABLE parcels (
  number TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  place TEXT NOT NULL,
  expected TEXT NOT NULL
) STRICT;
INSERT INTO parcels VALUES
  ('P-1001', 'in transit', 'Lyon sorting centre', 'tomorrow before noon'),
  ('P-1002', 'delivered', 'Oslo, front door', 'arrived on Monday'),
  ('P-1003', 'held at customs', 'Rotterdam harbour', 'unknown: an invoice is missing'),
  ('P-1004', 'out for delivery', 'Lisbon, van 12', 'today between 14:00 and 16:00'),
  ('P-1005', 'returned to sender', 'Graz', 'back in four days'),
  ('P-1006', 'waiting for pick-up', 'Tallinn, locker 7', 'until Friday evening');
