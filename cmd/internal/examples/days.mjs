import { DuckDBInstance } from '@duckdb/node-api'

const db = await (await DuckDBInstance.create()).connect()
const days = await db.runAndReadAll(`
SELECT day::text AS day, campaign, count(*)::integer AS claims
FROM read_parquet('${process.argv[2]}/*/*.parquet', hive_partitioning = true)
WHERE type = 'coupon.claimed' GROUP BY ALL ORDER BY ALL`)
for (const row of days.getRowObjectsJson()) console.log(JSON.stringify(row))
