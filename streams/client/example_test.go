package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// A shop's life with a coupon. With a server of your own the URL is nats://127.0.0.1:4222.
func Example() {
	url, stop, err := serve()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// A campaign of two coupons, one per customer.
	settings := wire.DefaultSettings(2)
	settings.Prefix = "SUMMER"
	settings.Benefit = []byte(`{"percent":10}`)
	if _, err := c.CreateCampaign(ctx, "summer", settings); err != nil {
		log.Fatal(err)
	}

	// A refusal is an outcome: three customers, two coupons.
	var code string
	for _, customer := range []string{"ann", "bob", "cid"} {
		out, err := c.Claim(ctx, "summer", customer)
		var unknown *client.UnknownError
		switch {
		case errors.As(err, &unknown):
			log.Fatalf("send again with id %s", unknown.ID)
		case err != nil:
			log.Fatal(err)
		case out.Refused():
			fmt.Println(customer, "gets none:", out.Refusal)
		default:
			fmt.Println(customer, "gets coupon", out.N)
			code = out.Code
		}
	}

	// A retry gets the same answer.
	first, err := c.Redeem(ctx, code, "order-1")
	if err != nil {
		log.Fatal(err)
	}
	again, err := c.Redeem(ctx, code, "order-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Status, string(first.Benefit), "repeat:", first.Repeat)
	fmt.Println(again.Status, string(again.Benefit), "repeat:", again.Repeat)

	// Another order does not get the benefit again.
	other, err := c.Validate(ctx, code, "order-2")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("for another order:", other.Refusal)

	// Output:
	// ann gets coupon 1
	// bob gets coupon 2
	// cid gets none: sold_out
	// redeemed {"percent":10} repeat: false
	// redeemed {"percent":10} repeat: true
	// for another order: already_redeemed
}
