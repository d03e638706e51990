package slice

import (
	"cmp"
	"math"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/conversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Compare returns -1 if a is less than b, 1 if it is more, and 0 if they are the same amount. It returns what
// Quantity.Cmp does, and is for quantities that anybody may have written: Cmp writes a and b out with the same
// exponent, which takes a gigabyte and hours for 1 and 1e2147483647, and as long for 1 and 0e2147483647. It is asked
// here only where neither amount is more than some twenty times the other: then it writes out hardly more digits than
// they have.
func Compare(a, b resource.Quantity) int {
	sign := a.Sign()
	if sign != b.Sign() || sign == 0 {
		return cmp.Compare(sign, b.Sign())
	}
	switch x, y := math.Abs(a.AsApproximateFloat64()), math.Abs(b.AsApproximateFloat64()); {
	case !isNormal(x) || !isNormal(y):
		x, y = magnitude(a), magnitude(b)
		if math.Abs(x-y) > 1 {
			return sign * cmp.Compare(x, y)
		}
	case x > 2*y || y > 2*x:
		return sign * cmp.Compare(x, y)
	}
	return a.Cmp(b)
}

// isNormal reports whether a positive float64 is as precise as others, and its double is one, too. Outside of that are
// quantities as Quantity.AsApproximateFloat64 returns them that are larger or smaller than any float64.
func isNormal(x float64) bool { return x > 1e-300 && x < 1e300 }

// magnitude returns the decimal logarithm of a quantity other than zero without its sign, rounded up by less than a
// third.
func magnitude(quantity resource.Quantity) float64 {
	number := quantity.AsDec()
	return float64(number.UnscaledBig().BitLen())*(math.Ln2/math.Ln10) - float64(number.Scale())
}

// DeepEqual is equality.Semantic.DeepEqual, with quantities compared by Compare. It is for objects that hold quantities
// which a tenant or a super cluster has written.
func DeepEqual(a, b any) bool { return semantic.DeepEqual(a, b) }

// semantic are the functions of equality.Semantic, but for quantities. Nothing changes it.
var semantic = func() conversion.Equalities {
	equalities := equality.Semantic.Copy()
	utilruntime.Must(equalities.AddFunc(func(a, b resource.Quantity) bool { return Compare(a, b) == 0 })) // fails for what is no such function
	return equalities
}()
