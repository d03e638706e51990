package kindtest

import (
	"bufio"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// What a translation makes of a field.
const (
	// copied is the same on the other side; of a struct, a pointer or a slice each field is in a line of its own.
	copied = "copied"
	// stripped is empty on the other side.
	stripped = "stripped"
	// translated is something else on the other side, at least for some.
	translated = "translated"
	// within is a field of a type that is found in fields alone that are translated or stripped: they decide.
	within = "within"
)

// EveryField holds a translation against a table in testdata, of all fields of T, a type of Kubernetes' API, and of the
// types below it: lines such as "PodSpec.nodeName stripped", where a field has its name in JSON. pair makes an object
// and what becomes of it. A field that a later version of Kubernetes adds is in no line, and fails until somebody has
// decided about it.
func EveryField[T any](t *testing.T, table string, pair func(seed int64) (before, after T)) {
	t.Helper()
	f := readFields(t, table)
	for seed := range int64(samples) {
		before, after := pair(seed)
		f.pair(reflect.ValueOf(before), reflect.ValueOf(after), "")
	}
	f.check(t, reflect.TypeFor[T]())
}

// fields is such a table.
type fields struct {
	decisions map[string]string
	// shown are the fields that a pair has shown to be what the table says.
	shown map[string]bool
	wrong map[string]string
}

func readFields(t *testing.T, name string) *fields {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	f := &fields{decisions: map[string]string{}, shown: map[string]bool{}, wrong: map[string]string{}}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			field, decision, _ := strings.Cut(line, " ")
			require.Contains(t, []string{copied, stripped, translated, within}, decision, line)
			require.NotContains(t, f.decisions, field)
			f.decisions[field] = decision
		}
	}
	require.NoError(t, lines.Err())
	return f
}

// samples is how many pairs are shown to a table: as many as it takes until fields that are rarely set are among them.
const samples = 300

// Fill fills what into points to with values that are random, and the same each time for a seed. One text in four is
// one of words: those for which a translation looks.
func Fill(seed int64, into any, words ...string) {
	randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(1+c.Int63n(1000), 0) },
		func(amount *resource.Quantity, c randfill.Continue) {
			*amount = *resource.NewQuantity(c.Int63n(4), resource.DecimalSI)
		},
		func(text *string, c randfill.Continue) {
			*text = c.String(0)
			if len(words) > 0 && c.Intn(4) == 0 {
				*text = words[c.Intn(len(words))]
			}
		},
	).Fill(into)
}

// check fails where the table lacks a field of a type or below it, has one that there is not, and where no pair, or
// another than it says, has been shown for a field.
func (f *fields) check(t *testing.T, of reflect.Type) {
	t.Helper()
	exist := map[string]bool{}
	fieldsBelow(of, exist, map[reflect.Type]bool{})
	var wrong []string
	for field := range exist {
		switch decision, known := f.decisions[field]; {
		case !known:
			wrong = append(wrong, field+": nobody has decided what becomes of it")
		case f.wrong[field] != "":
			wrong = append(wrong, field+" is not "+decision+": "+f.wrong[field])
		case !f.shown[field] && decision != within, f.shown[field] && decision == within:
			wrong = append(wrong, field+" "+decision+": is not what pairs have shown")
		}
	}
	for field := range f.decisions {
		if !exist[field] {
			wrong = append(wrong, field+": there is no such field")
		}
	}
	slices.Sort(wrong)
	require.Empty(t, strings.Join(wrong, "\n"))
}

func (f *fields) pair(before, after reflect.Value, field string) {
	switch {
	case before.Kind() == reflect.Pointer && ofAPI(before.Type().Elem()):
		if before.IsNil() == after.IsNil() {
			if !before.IsNil() {
				f.pair(before.Elem(), after.Elem(), field)
			}
			return
		}
		f.wrong[field] = "one of the two is nil"
	case before.Kind() == reflect.Slice && ofAPI(before.Type().Elem()):
		if before.Len() != after.Len() {
			f.wrong[field] = "the two have another length"
			return
		}
		for i := range before.Len() {
			f.pair(before.Index(i), after.Index(i), field)
		}
	case ofAPI(before.Type()):
		for _, each := range jsonFields(before.Type()) {
			f.field(each.name, before.FieldByIndex(each.index), after.FieldByIndex(each.index))
		}
	case !apiequality.Semantic.DeepEqual(before.Interface(), after.Interface()):
		f.wrong[field] = cmp.Diff(before.Interface(), after.Interface())
	}
}

// field compares one field of both.
func (f *fields) field(name string, before, after reflect.Value) {
	if before.IsZero() && after.IsZero() {
		return
	}
	switch f.decisions[name] {
	case copied:
		f.shown[name] = true
		f.pair(before, after, name)
	case stripped:
		f.shown[name] = true
		if !after.IsZero() {
			f.wrong[name] = "it is not empty"
		}
	case translated:
		f.shown[name] = f.shown[name] || !apiequality.Semantic.DeepEqual(before.Interface(), after.Interface())
	case within:
		f.shown[name] = true
	}
}

type jsonField struct {
	name  string
	index []int
}

// jsonFields returns the fields of a struct as they are in JSON: those of embedded structs without a name among them.
func jsonFields(of reflect.Type) []jsonField {
	var fields []jsonField
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inlined := field.Anonymous && name == ""
		ofMetadata := len(field.Index) > 1 && of.Field(field.Index[0]).Type == reflect.TypeFor[metav1.ObjectMeta]()
		if !inlined && !ofMetadata {
			fields = append(fields, jsonField{of.Name() + "." + name, field.Index})
		}
	}
	return fields
}

// ofAPI returns whether a type is a struct of Kubernetes' API, and no value of its own as a time is.
func ofAPI(of reflect.Type) bool {
	return of.Kind() == reflect.Struct && strings.HasPrefix(of.PkgPath(), "k8s.io/api/")
}

// fieldsBelow adds to fields those of a type and of the types of its fields.
func fieldsBelow(of reflect.Type, fields map[string]bool, seen map[reflect.Type]bool) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if !ofAPI(of) || seen[of] {
		return
	}
	seen[of] = true
	for _, field := range jsonFields(of) {
		fields[field.name] = true
		fieldsBelow(of.FieldByIndex(field.index).Type, fields, seen)
	}
}
