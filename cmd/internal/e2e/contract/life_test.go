package contract

import "testing"

// TestLifeOfACoupon: every command of people, in the order of a life, field by field.
func TestLifeOfACoupon(t *testing.T) {
	const settings = `"codes":2,"per_customer":2,"max_redemptions":2,"expires_at":"2031-01-02T04:04:05+01:00","closes_at":"2031-01-02T00:00:00Z","prefix":"summer","category":"food","priority":"high","benefit":{"percent": 20}`
	const stored = `"codes":2,"per_customer":2,"max_redemptions":2,"expires_at":"2031-01-02T03:04:05Z","closes_at":"2031-01-02T00:00:00Z","prefix":"SUMMER","category":"food","priority":"high","benefit":{"percent":20}`
	const coupon = `"campaign":"$c","n":1,"code":"$1"`
	const ends = `"expires_at":"2031-01-02T03:04:05Z"`
	play(t, []step{
		{kind: "create_campaign", id: "create", fields: settings,
			outcome: `{"id":"create","status":"created","campaign":"$c"}`,
			events:  `{"type":"campaign.created","campaign":"$c","at":"~time","id":"create","number":"~n",` + stored + `}`,
			row:     `{"status":"active","codes":2,"claimed":0,"redeemed":0,"expired":0,"voided":0}`},
		{kind: "create_campaign", id: "again", fields: settings,
			outcome: `{"id":"again","status":"created","campaign":"$c","repeat":true}`},
		{kind: "create_campaign", id: "other", fields: `"codes":3`,
			outcome: `{"id":"other","status":"refused","refusal":"campaign_exists","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"campaign_exists":1}}`},

		{kind: "claim", id: "a", fields: `"customer_id":"ann","attributes":{"channel":"app","age":30,"vip":true}`,
			outcome: `{"id":"a","status":"claimed","campaign":"$c","n":1,"code":"~code",` + ends + `,"?customer_id":"ann"}`,
			events:  `{"type":"coupon.claimed","campaign":"$c","at":"~time","id":"a","n":1,"code":"$1","customer_id":"ann","attributes":{"channel":"app","age":30,"vip":true}}`,
			row:     `{"status":"active","codes":2,"claimed":1,"redeemed":0,"expired":0,"voided":0}`,
			coupons: []string{`{"n":1,"code":"$1","customer_id":"ann","status":"claimed","expires_at":"~at:2031-01-02T03:04:05Z","redeemed_count":0,"redeemed_at":null}`}},
		{kind: "claim", id: "a", fields: `"customer_id":"ann","attributes":{"channel":"app","age":30,"vip":true}`,
			outcome: `{"id":"a","status":"claimed",` + coupon + `,` + ends + `,"?customer_id":"ann","repeat":true}`},
		{kind: "claim", id: "a", fields: `"customer_id":"bob"`,
			outcome: `{"id":"a","status":"refused","refusal":"idempotency_key_reused","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"idempotency_key_reused":1}}`},

		{kind: "redeem", id: "r1", fields: `"code":"$1","order_id":"o1"`,
			outcome: `{"id":"r1","status":"redeemed",` + coupon + `,` + ends + `,"?order_id":"o1","redeemed_count":1,"benefit":{"percent":20}}`,
			events:  `{"type":"coupon.redeemed","campaign":"$c","at":"~time","id":"r1","n":1,"code":"$1","order_id":"o1","redeemed_count":1}`,
			row:     `{"status":"active","codes":2,"claimed":1,"redeemed":0,"expired":0,"voided":0}`,
			coupons: []string{`{"n":1,"code":"$1","customer_id":"ann","status":"claimed","expires_at":"~any","redeemed_count":1,"redeemed_at":"~any"}`}},
		{kind: "redeem", id: "r1-again", fields: `"code":"$1","order_id":"o1"`,
			outcome: `{"id":"r1-again","status":"redeemed",` + coupon + `,` + ends + `,"?order_id":"o1","redeemed_count":1,"benefit":{"percent":20},"repeat":true}`},
		{kind: "redeem", id: "r2", fields: `"campaign":"$c","code":"$1","order_id":"o2","customer_id":"ann"`,
			outcome: `{"id":"r2","status":"redeemed",` + coupon + `,"customer_id":"ann",` + ends + `,"?order_id":"o2","redeemed_count":2,"benefit":{"percent":20}}`,
			events:  `{"type":"coupon.redeemed","campaign":"$c","at":"~time","id":"r2","n":1,"code":"$1","customer_id":"ann","order_id":"o2","redeemed_count":2}`,
			row:     `{"status":"active","codes":2,"claimed":1,"redeemed":1,"expired":0,"voided":0}`,
			coupons: []string{`{"n":1,"code":"$1","customer_id":"ann","status":"redeemed","expires_at":"~any","redeemed_count":2,"redeemed_at":"~text"}`}},
		{kind: "redeem", id: "r3", fields: `"code":"$1","order_id":"o3"`,
			outcome: `{"id":"r3","status":"refused","refusal":"redemption_limit_reached","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"redemption_limit_reached":1}}`},
		{kind: "rollback", id: "b", fields: `"code":"$1","order_id":"o1","customer_id":"ann"`,
			outcome: `{"id":"b","status":"rolled_back",` + coupon + `,"?customer_id":"ann","?` + ends[1:] + `,"?order_id":"o1","?redeemed_count":1}`,
			events:  `{"type":"coupon.rolled_back","campaign":"$c","at":"~time","id":"b","n":1,"code":"$1","order_id":"o1","status":"claimed","?redeemed_count":1}`,
			coupons: []string{`{"n":1,"code":"$1","customer_id":"ann","status":"claimed","expires_at":"~any","redeemed_count":1,"redeemed_at":"~text"}`}},
		{kind: "rollback", id: "b-again", fields: `"code":"$1","order_id":"o1"`,
			outcome: `{"id":"b-again","status":"rolled_back",` + coupon + `,"?` + ends[1:] + `,"?order_id":"o1","?redeemed_count":1,"repeat":true}`},
		{kind: "rollback", id: "b-never", fields: `"code":"$1","order_id":"o9"`,
			outcome: `{"id":"b-never","status":"refused","refusal":"not_redeemed","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"not_redeemed":1}}`},
		{kind: "redeem", id: "r1", fields: `"code":"$1","order_id":"o1"`, // its redemption is over
			outcome: `{"id":"r1","status":"refused","refusal":"redemption_rolled_back","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"redemption_rolled_back":1}}`},
		{kind: "redeem", id: "stranger", fields: `"code":"$1","order_id":"o4","customer_id":"bob"`,
			outcome: `{"id":"stranger","status":"refused","refusal":"not_holder","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"not_holder":1}}`},

		{kind: "extend", id: "x", fields: `"code":"$1","expires_at":"2032-01-01T00:00:00Z"`,
			outcome: `{"id":"x","status":"extended",` + coupon + `,"expires_at":"2032-01-01T00:00:00Z"}`,
			events:  `{"type":"coupon.extended","campaign":"$c","at":"~time","id":"x","n":1,"code":"$1","expires_at":"2032-01-01T00:00:00Z","status":"claimed"}`,
			coupons: []string{`{"n":1,"code":"$1","customer_id":"ann","status":"claimed","expires_at":"~at:2032-01-01T00:00:00Z","redeemed_count":1,"redeemed_at":"~text"}`}},
		{kind: "void", id: "v", fields: `"code":"$1","reason":"fraud"`,
			outcome: `{"id":"v","status":"voided",` + coupon + `,"?expires_at":"2032-01-01T00:00:00Z"}`,
			events:  `{"type":"coupon.voided","campaign":"$c","at":"~time","id":"v","n":1,"code":"$1","reason":"fraud","status":"voided"}`,
			row:     `{"status":"active","codes":2,"claimed":1,"redeemed":0,"expired":0,"voided":1}`,
			coupons: []string{`{"n":1,"code":"$1","customer_id":"ann","status":"voided","expires_at":"~any","redeemed_count":1,"redeemed_at":"~text"}`}},
		{kind: "redeem", id: "r4", fields: `"code":"$1","order_id":"o4"`,
			outcome: `{"id":"r4","status":"refused","refusal":"voided","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"voided":1}}`},

		{kind: "pause_campaign", id: "p", outcome: `{"id":"p","status":"paused","campaign":"$c"}`,
			events: `{"type":"campaign.paused","campaign":"$c","at":"~time","id":"p"}`,
			row:    `{"status":"paused","codes":2,"claimed":1,"redeemed":0,"expired":0,"voided":1}`},
		{kind: "claim", id: "while-paused", fields: `"customer_id":"bob"`,
			outcome: `{"id":"while-paused","status":"refused","refusal":"campaign_paused","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"campaign_paused":1}}`},
		{kind: "resume_campaign", id: "u", outcome: `{"id":"u","status":"resumed","campaign":"$c"}`,
			events: `{"type":"campaign.resumed","campaign":"$c","at":"~time","id":"u"}`},
		{kind: "claim", id: "while-paused", fields: `"customer_id":"bob"`, // a refused one is decided again; the last coupon
			outcome: `{"id":"while-paused","status":"claimed","campaign":"$c","n":2,"code":"~code",` + ends + `,"?customer_id":"bob"}`,
			events: `{"type":"coupon.claimed","campaign":"$c","at":"~time","id":"while-paused","n":2,"code":"$2","customer_id":"bob"}
				{"type":"campaign.sold_out","campaign":"$c","at":"~time","id":"while-paused"}`},
		{kind: "claim", id: "late", fields: `"customer_id":"cleo"`,
			outcome: `{"id":"late","status":"refused","refusal":"sold_out","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"sold_out":1}}`},
		{kind: "update_campaign", id: "grow", fields: `"codes":4`, outcome: `{"id":"grow","status":"updated","campaign":"$c"}`,
			events: `{"type":"campaign.updated","campaign":"$c","at":"~time","id":"grow","number":"~n","codes":4,` + stored[len(`"codes":2,`):] + `}`,
			row:    `{"status":"active","codes":4,"claimed":2,"redeemed":0,"expired":0,"voided":1}`},
		{kind: "update_campaign", id: "grow", fields: `"codes":4`, outcome: `{"id":"grow","status":"updated","campaign":"$c","repeat":true}`},
		{kind: "end_campaign", id: "e", outcome: `{"id":"e","status":"ended","campaign":"$c"}`,
			events: `{"type":"campaign.ended","campaign":"$c","at":"~time","id":"e"}`,
			row:    `{"status":"ended","codes":4,"claimed":2,"redeemed":0,"expired":0,"voided":1}`},
		{kind: "claim", id: "too-late", fields: `"customer_id":"cleo"`,
			outcome: `{"id":"too-late","status":"refused","refusal":"campaign_ended","message":"~text","campaign":"$c"}`,
			events:  `{"type":"commands.refused","campaign":"$c","at":"~time","counts":{"campaign_ended":1}}`},
		{kind: "redeem", id: "r5", fields: `"code":"$2","order_id":"o5"`, // coupons live on
			outcome: `{"id":"r5","status":"redeemed","campaign":"$c","n":2,"code":"$2",` + ends + `,"?order_id":"o5","redeemed_count":1,"benefit":{"percent":20}}`,
			events:  `{"type":"coupon.redeemed","campaign":"$c","at":"~time","id":"r5","n":2,"code":"$2","order_id":"o5","redeemed_count":1}`},
	})
}
