package policy

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// quotedLen returns len(strconv.Quote(text)) without making it.
func quotedLen(text string) int {
	size := len(`""`)
	for i, r := range text {
		switch {
		case strings.ContainsRune("\a\b\f\n\r\t\v\\\"", r):
			size += len(`\n`)
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"): // a byte that is no UTF-8
			size += len(`\x00`)
		case strconv.IsPrint(r):
			size += utf8.RuneLen(r)
		case r < ' ' || r == 0x7f:
			size += len(`\x00`)
		case r < 0x10000:
			size += len(`\u0000`)
		default:
			size += len(`\U00000000`)
		}
	}
	return size
}
