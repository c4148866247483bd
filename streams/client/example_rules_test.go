package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// shop is a client of a server of its own, with the campaign summer.
func shop(ctx context.Context, settings wire.Settings) (c *client.Client, stop func()) {
	url, stopServer, err := serve()
	if err != nil {
		log.Fatal(err)
	}
	if c, err = client.Connect(url); err != nil {
		log.Fatal(err)
	}
	if _, err = c.CreateCampaign(ctx, "summer", settings); err != nil {
		log.Fatal(err)
	}
	return c, func() { c.Close(); _ = stopServer() }
}

// The retry rule: an unknown outcome is retried under the same id until an answer arrives. The answer is that of the first
// command that had an effect.
func ExampleClient_Claim_retry() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, stop := shop(ctx, wire.DefaultSettings(10))
	defer stop()

	claim := func(id string) (wire.Outcome, error) {
		for {
			out, err := c.Claim(ctx, "summer", "ann", client.ID(id))
			var unknown *client.UnknownError
			switch {
			case errors.As(err, &unknown) && ctx.Err() == nil: // it may have had its effect
			case err == nil && out.Refusal == wire.NotDurable: // nothing was stored
			default:
				return out, err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	first, err := claim("basket-17")
	if err != nil {
		log.Fatal(err)
	}
	again, err := claim("basket-17") // such as after a crash of this program
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Status, first.N, "repeat:", first.Repeat)
	fmt.Println(again.Status, again.N, "repeat:", again.Repeat, "same code:", first.Code == again.Code)

	// Output:
	// claimed 1 repeat: false
	// claimed 1 repeat: true same code: true
}

// A program that claims for many customers does not wait for each answer. The client sends the claims in few messages.
func ExampleClient_DoAsync() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, stop := shop(ctx, wire.DefaultSettings(60))
	defer stop()

	outcomes := make(chan wire.Outcome, 100)
	for i := range cap(outcomes) {
		cmd := wire.Command{Type: wire.Claim, Campaign: "summer", CustomerID: fmt.Sprint("customer-", i)}
		err := c.DoAsync(ctx, cmd, func(out wire.Outcome, err error) {
			if err != nil {
				log.Fatal(err)
			}
			outcomes <- out
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	count := map[string]int{}
	for range cap(outcomes) {
		out := <-outcomes
		count[out.Status+" "+string(out.Refusal)]++
	}
	fmt.Println(count)

	// Output:
	// map[claimed :60 refused sold_out:40]
}

// Support rolls back a redemption whose order was cancelled: the coupon can be used again.
func ExampleClient_Rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, stop := shop(ctx, wire.DefaultSettings(1))
	defer stop()

	claimed, err := c.Claim(ctx, "summer", "ann")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Redeem(ctx, claimed.Code, "order-1"); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Rollback(ctx, claimed.Code, "order-1"); err != nil {
		log.Fatal(err)
	}
	coupon, err := c.Coupon(ctx, claimed.Code)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(coupon.Status, coupon.RedeemedCount)

	// Output:
	// claimed 0
}

// A customer is reminded a day before the coupon expires, at most once.
func ExampleClient_Remind() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	settings := wire.DefaultSettings(1)
	settings.ExpiresAt = wire.At(time.Now().Add(7 * 24 * time.Hour))
	c, stop := shop(ctx, settings)
	defer stop()

	if _, err := c.Claim(ctx, "summer", "ann"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		out, err := c.Remind(ctx, "summer", "ann", wire.KindExpires, 24*time.Hour)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Status, "repeat:", out.Repeat)
	}

	// Output:
	// reminder_set repeat: false
	// reminder_set repeat: true
}

// Codes that were printed elsewhere. The same codes under the same id import only what is missing.
func ExampleClient_ImportCodes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, stop := shop(ctx, wire.DefaultSettings(0)) // 0 = the codes are imported
	defer stop()

	printed := []string{"AUTUMN-7KQ29F3M", "AUTUMN-8WX41H6P", "AUTUMN-9ZT53J8R"}
	for range 2 {
		out, err := c.ImportCodes(ctx, "summer", slices.Values(printed), nil, client.ID("print-run-1"))
		if err != nil || out.Refused() {
			log.Fatal(err, out.Message)
		}
		fmt.Println(out.Status, out.Count, "repeat:", out.Repeat)
	}
	claimed, err := c.Claim(ctx, "summer", "ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(claimed.Code)

	// Output:
	// imported 3 repeat: false
	// imported 3 repeat: true
	// AUTUMN-7KQ29F3M
}
