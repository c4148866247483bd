-- The events of the coupons in k and the reminders in m, newest first, after a cursor. {{which}} selects them, by t.
--
-- s are the spans in which a coupon had one expiry instant: up to each extension, and from the last on. It expired in a span with
-- the first announcement that reaches its own expiry, or with each that has the campaign's end, unless it was void or redeemed by
-- then: the newest redemption before it used the coupon up, and too few were rolled back between.
--
-- The plan may have been made while the tables were empty, so each table is read for each coupon: LATERAL with LIMIT or OFFSET is no join
-- that the planner could turn round.
--
-- A coupon may have any number of redemptions and rollbacks, and a page reads no more of them than it shows. In a lane times rise
-- with places, so that each is ordered by its key, and entries older than a cursor of that lane are below its place.
--
-- $2 = how many   $3..$7 = the cursor: time, lane, packed position, coupon, reminder
WITH k AS MATERIALIZED (SELECT q.*, CASE WHEN q.lane = $4 AND $3::timestamptz < 'infinity' THEN $5 ELSE 9223372036854775807 END AS below FROM (
    SELECT t.campaign, t.n, t.code, t.customer_id, t.claimed_at, t.claimed_place, t.attributes, t.expires_at AS own, t.voided_at, c.lane, c.max_redemptions
    FROM scrip_tables.coupon_row t JOIN scrip_tables.campaign c ON c.campaign = t.campaign WHERE {{which}}{{printed}}) q),
m AS MATERIALIZED (SELECT t.*, c.lane FROM scrip_tables.reminder t JOIN scrip_tables.campaign c ON c.campaign = t.campaign WHERE {{which}}),
s AS (SELECT k.*, e.own_before AS ends, e.place AS upto FROM k CROSS JOIN LATERAL (SELECT * FROM scrip_tables.coupon_event e
        WHERE e.campaign COLLATE "POSIX" = k.campaign AND e.n = k.n AND e.order_id IS NULL AND e.what = 'extended' OFFSET 0) e
      UNION ALL SELECT k.*, k.own, NULL FROM k)
SELECT * FROM (
  SELECT k.claimed_at, CASE WHEN k.claimed_place = (SELECT a.place FROM scrip_tables.allotment a WHERE a.campaign = k.campaign AND a.from_n <= k.n
             ORDER BY a.from_n DESC LIMIT 1) THEN 'allotted' ELSE 'claimed' END, k.lane, k.claimed_place, k.campaign, k.n, 0::bigint, k.code, k.customer_id, NULL::text, NULL::text, k.attributes,
         NULL::text, NULL::timestamptz, NULL::timestamptz FROM k
  UNION ALL SELECT x.redeemed_at, 'redeemed', k.lane, x.sequence * 1048576 + x.line, k.campaign, k.n, 0, k.code, k.customer_id, x.order_id, NULL, NULL,
         NULL, NULL, NULL
    FROM k CROSS JOIN LATERAL (SELECT * FROM scrip_tables.redemption_row x WHERE x.campaign = k.campaign AND x.n = k.n
        AND (x.sequence, x.line) < (k.below / 1048576, k.below % 1048576) AND (x.redeemed_at, k.lane) <= ($3::timestamptz, $4::bigint)
        ORDER BY x.sequence DESC, x.line DESC LIMIT $2) x
  UNION ALL SELECT e.at, e.what, k.lane, e.place, k.campaign, k.n, 0, k.code, k.customer_id, e.order_id, e.reason, NULL, NULL, NULL, e.expires_at
    FROM k CROSS JOIN LATERAL (SELECT * FROM scrip_tables.coupon_event e WHERE e.campaign = k.campaign AND e.n = k.n
        AND e.place < k.below AND (e.at, k.lane) <= ($3::timestamptz, $4::bigint) ORDER BY e.place DESC LIMIT $2) e
  UNION ALL SELECT a.at, 'expired', s.lane, a.place, s.campaign, s.n, 0, s.code, s.customer_id, NULL, NULL, NULL, NULL, NULL, a.expires_at
    FROM s CROSS JOIN LATERAL (
      (SELECT a.at, a.place, s.ends AS expires_at FROM scrip_tables.expiry_event a
       WHERE s.ends IS NOT NULL AND a.campaign = s.campaign AND a.through >= s.ends ORDER BY a.through LIMIT 1)
      UNION ALL
      (SELECT a.at, a.place, a.campaign_end FROM scrip_tables.expiry_event a
       WHERE s.ends IS NULL AND a.campaign = s.campaign AND a.campaign_end IS NOT NULL)) a
    WHERE a.place > s.claimed_place AND (s.upto IS NULL OR a.place < s.upto)
      AND (s.voided_at IS NULL OR a.place < (SELECT min(v.place) FROM scrip_tables.coupon_event v
          WHERE v.campaign COLLATE "POSIX" = s.campaign AND v.n = s.n AND v.order_id IS NULL AND v.what = 'voided'))
      AND NOT EXISTS (SELECT FROM (
          SELECT x.sequence * 1048576 + x.line AS place, coalesce(x.redeemed_count, 1) - s.max_redemptions AS spare
          FROM scrip_tables.redemption_row x WHERE x.campaign = s.campaign AND x.n = s.n AND (x.sequence, x.line) < (a.place / 1048576, a.place % 1048576)
          ORDER BY x.sequence DESC, x.line DESC LIMIT 1) x
        WHERE x.spare >= 0 AND NOT EXISTS (SELECT FROM scrip_tables.coupon_event b WHERE b.campaign = s.campaign AND b.n = s.n
          AND b.place > x.place AND b.place < a.place AND b.order_id IS NOT NULL OFFSET greatest(x.spare, 0)))
  UNION ALL SELECT m.set_at, 'reminder_set', m.lane, m.set_place, m.campaign, coalesce(m.n, 0), m.r, NULL, m.customer_id, NULL, NULL, NULL, m.kind, m.due_at, NULL
    FROM m
  UNION ALL SELECT m.settled_at, 'reminder_' || m.state, m.lane, m.settled_place, m.campaign, coalesce(m.n, 0), m.r, NULL, m.customer_id, NULL, NULL, NULL, m.kind, m.due_at, NULL
    FROM m WHERE m.settled_at IS NOT NULL
) h (at, what, lane, place, campaign, n, r, code, customer_id, order_id, reason, attributes, kind, due_at, expires_at)
WHERE (at, lane, place, n, r) < ($3::timestamptz, $4::bigint, $5::bigint, $6::bigint, $7::bigint)
ORDER BY at DESC, lane DESC, place DESC, n DESC, r DESC LIMIT $2
