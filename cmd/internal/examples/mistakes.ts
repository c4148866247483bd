// Mistakes that the types find: the line after each comment with a number has that error of tsc, and no other line has one.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Body = components["schemas"];
const scrip = createClient<paths>();
const campaign = "errand";

// 2561: a misspelt field of a request
await scrip.POST("/v1/campaigns", { body: { campaign, codes: 10, per_custommer: 2 } satisfies Body["CreateCampaign"] });
// 2322: a field that is required
await scrip.POST("/v1/redemptions", { body: { campaign, n: 1 } });
// 2345: a route that there is not
await scrip.GET("/v1/campaigns/{campaign}/coupon", { params: { path: { campaign } } });

const { data, error } = await scrip.POST("/v1/redemptions", { body: { campaign, n: 1, order_id: "A-1001" } });
// 2551: a misspelt field of an answer
console.log(data?.reedemed_count);
// 2367: a status that a redemption cannot have
console.log(data?.status === "claimed");
// 2367: a code that there is not
console.log(error?.code === "sold-out");

const show = (event: Body["EventLine"]) => {
  // 2339: a field of another type of event
  if (event.type === "coupon.claimed") console.log(event.order_id);
};
console.log(show);
