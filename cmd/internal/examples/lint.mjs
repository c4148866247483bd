// Prints what redocly's recommended rules find in the OpenAPI document FILE.
import { createConfig, lint } from "@redocly/openapi-core";

const problems = await lint({ ref: process.argv[2], config: await createConfig({ extends: ["recommended"] }) });
for (const { severity, ruleId, message, location } of problems) console.log(severity, ruleId, location[0]?.pointer, message);
