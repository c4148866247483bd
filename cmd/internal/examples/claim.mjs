// Claims a coupon of a campaign for each customer and prints its code. Node 18 or newer, no packages.
//
//   URL=http://127.0.0.1:8080 KEY=sk_producer_… node claim.mjs summer alice bob
const { URL: server, KEY: key } = process.env;

// claim returns the answer to a claim. Each attempt has the same id, also after a restart of this program.
async function claim(campaign, customer, id) {
  for (let attempt = 0; attempt < 10; attempt++) {
    let pause = Math.random() * Math.min(10, 0.1 * 2 ** attempt); // seconds
    try {
      const response = await fetch(`${server}/v1/campaigns/${campaign}/claims`, {
        method: "POST",
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json", "Idempotency-Key": id },
        body: JSON.stringify({ customer_id: customer }),
        signal: AbortSignal.timeout(10_000),
      });
      const answer = await response.text();
      if (![429, 502, 503, 504].includes(response.status)) return JSON.parse(answer); // final: "code" of an error is the refusal
      pause = Math.max(pause, Number(response.headers.get("Retry-After")));
    } catch {} // the connection was lost, perhaps within the answer
    await new Promise((wake) => setTimeout(wake, pause * 1000));
  }
  throw new Error(`the outcome of ${id} is unknown: claim again with this id`);
}

const [campaign, ...customers] = process.argv.slice(2);
for (const customer of customers) {
  const answer = await claim(campaign, customer, `welcome-${customer}`);
  if (answer.status !== "claimed") throw new Error(`claim for ${customer}: ${JSON.stringify(answer)}`);
  console.log(customer, answer.code);
}
