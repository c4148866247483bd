package code_test

import (
	"fmt"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

func ExampleCodec() {
	key, err := code.ParseKey(strings.Repeat("0123456789abcdef", 4))
	if err != nil {
		fmt.Println(err)
		return
	}
	codec := code.New(key)

	shown := codec.AppendCode(nil, "SUMMER", 12, 34)
	fmt.Println(string(shown))

	campaign, n, ok := codec.Decode("summer " + strings.ToLower(string(shown[len("SUMMER-"):])))
	fmt.Println(campaign, n, ok)
	// Output:
	// SUMMER-LBFU-NEZA-W2UB
	// 12 34 true
}
