// Claims a coupon of a campaign for each customer, all at once, and prints the codes. Node 20 or newer, and the package
// @nats-io/transport-node: npm ci
//
//   NATS=nats://127.0.0.1:4222 KEY=sk_producer_… node claim_nats.mjs summer alice bob
import { connect, headers } from "@nats-io/transport-node";

const { NATS: servers, KEY: key } = process.env;
const [, role, text] = key.split("_");
const nc = await connect({
  servers: servers.split(","),
  token: key,
  inboxPrefix: `_INBOX_${role}.${text.slice(0, 8)}`, // a user may subscribe to its own inboxes alone
  maxReconnectAttempts: -1,
});

// claim returns the outcome of a claim. Each attempt has the same id, also after a restart of this program.
async function claim(campaign, customer, id) {
  const body = JSON.stringify({ id, customer_id: customer });
  for (let attempt = 0; attempt < 10; attempt++) {
    try {
      const limit = headers();
      limit.set("Scrip-Timeout", "2s"); // the server answers within this time, so the client waits longer
      const reply = await nc.request(`scrip.claim.${campaign}`, body, { timeout: 2_500, headers: limit });
      const outcome = reply.json();
      if (!["429", "503"].includes(reply.headers?.get("Nats-Service-Error-Code")) && outcome.refusal !== "not_durable") return outcome;
    } catch {} // no answer in time, no server, or the connection was lost
    await new Promise((wake) => setTimeout(wake, Math.random() * Math.min(10_000, 100 * 2 ** attempt)));
  }
  throw new Error(`the outcome of ${id} is unknown: claim again with this id`);
}

const [campaign, ...customers] = process.argv.slice(2);
await Promise.all(customers.map(async (customer) => {
  const outcome = await claim(campaign, customer, `welcome-${customer}`);
  if (outcome.status !== "claimed") throw new Error(`claim for ${customer}: ${JSON.stringify(outcome)}`);
  console.log(customer, outcome.code);
}));
await nc.close();
