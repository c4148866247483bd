package code

import "strings"

// shownSymbols is how many symbols of a masked code are shown at most, and of a short one no more than a third: with the rest
// of it, it cannot be guessed.
const shownSymbols = 4

// Mask replaces a code by stars, but for its end. Hyphens stay. It is for people who may see which coupon it is, and may not
// use it.
func Mask(code string) string {
	symbols := []rune(code)
	show := min(shownSymbols, (len(symbols)-strings.Count(code, "-"))/3)
	for i := len(symbols) - 1; i >= 0; i-- {
		switch {
		case symbols[i] == '-':
		case show > 0:
			show--
		default:
			symbols[i] = '*'
		}
	}
	return string(symbols)
}

// Masked reports whether a text is a code that [Mask] has made, and so none.
func Masked(text string) bool { return strings.HasPrefix(text, "*") }
