// An operator's errand with a client whose types are made from the OpenAPI document: see document_test.go.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Body = components["schemas"];
declare const process: { env: { [name: string]: string | undefined } };

const scrip = createClient<paths>({ baseUrl: process.env["URL"]!, headers: { Authorization: `Bearer ${process.env["KEY"]}` } });
const campaign = "errand";
const order_id = "A-1001";

// must returns the answer, or throws what the server refused.
function must<Answer>({ data, error }: { data?: Answer; error?: { code: string; detail?: string } }): Answer {
  if (data === undefined) throw new Error(`${error?.code}: ${error?.detail}`);
  return data;
}

must(await scrip.POST("/v1/campaigns", { body: { campaign, codes: 10 } satisfies Body["CreateCampaign"] }));
const claim = {
  params: { path: { campaign }, header: { "Idempotency-Key": "claim-1" } },
  body: { customer_id: "ann" } satisfies Body["Claim"],
};
const { n } = must(await scrip.POST("/v1/campaigns/{campaign}/claims", claim));
if (n === undefined) throw new Error("only answers to public keys have no n");
const again = must(await scrip.POST("/v1/campaigns/{campaign}/claims", claim));
if (!again.repeat || again.n !== n) throw new Error("another coupon for the same Idempotency-Key");

const redemption = { campaign, n, order_id } satisfies Body["Redeem"] & Body["Validate"];
const { valid, coupon } = must(await scrip.POST("/v1/validations", { body: redemption }));
if (!valid || coupon?.status !== "claimed") throw new Error("the coupon cannot be redeemed");
const redeemed = must(await scrip.POST("/v1/redemptions", { body: redemption }));
if (redeemed.redeemed_count !== 1) throw new Error(`redeemed ${redeemed.redeemed_count} times`);
must(await scrip.POST("/v1/rollbacks", { body: redemption }));
must(await scrip.POST("/v1/coupons/void", { body: { campaign, n, reason: "lost" } satisfies Body["Void"] }));

const { error } = await scrip.POST("/v1/redemptions", { body: { campaign, n, order_id: "A-1002" } });
if (error?.code !== "voided") throw new Error(`a void coupon is refused as ${error?.code}`);
console.log("done");
