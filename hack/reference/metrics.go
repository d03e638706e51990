package main

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// metricsPage lists our own metrics: every prometheus.New...(prometheus.XOpts{...}, labels) of the code.
func metricsPage(code *source) (string, error) {
	var rows [][]string
	for _, path := range code.paths {
		ast.Inspect(code.files[path], func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			kind, isMetric := metricKind(call)
			options, isLiteral := call.Args[0].(*ast.CompositeLit)
			if !isMetric || !isLiteral {
				return true
			}
			fields := stringFields(options)
			name := strings.TrimLeft(fields["Namespace"]+"_"+fields["Subsystem"]+"_"+fields["Name"], "_")
			name = strings.ReplaceAll(name, "__", "_") // one of them is empty
			rows = append(rows, []string{"`" + name + "`", kind, labelsOf(call, options), fields["Help"], programOf(path)})
			return true
		})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return notice + "# Metrics of our own\n\nWhat the libraries add, and what to look at first: [metrics](../metrics.md).\n\n" +
		table([]string{"metric", "type", "labels", "what", "program"}, rows), nil
}

// metricKind returns counter, gauge or histogram for a constructor of package prometheus.
func metricKind(call *ast.CallExpr) (string, bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	if of, ok := selector.X.(*ast.Ident); !ok || of.Name != "prometheus" {
		return "", false
	}
	for _, kind := range []string{"Counter", "Gauge", "Histogram"} {
		if strings.HasPrefix(selector.Sel.Name, "New"+kind) {
			return strings.ToLower(kind), true
		}
	}
	return "", false
}

func stringFields(literal *ast.CompositeLit) map[string]string {
	fields := map[string]string{}
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, isName := pair.Key.(*ast.Ident)
		value, isLiteral := pair.Value.(*ast.BasicLit)
		if !isName || !isLiteral || value.Kind != token.STRING {
			continue
		}
		if text, err := strconv.Unquote(value.Value); err == nil {
			fields[key.Name] = text
		}
	}
	return fields
}

// labelsOf returns the labels of a vector, and those that are constant, "" for a metric without.
func labelsOf(call *ast.CallExpr, options *ast.CompositeLit) string {
	var names []ast.Expr
	if len(call.Args) > 1 {
		if list, ok := call.Args[1].(*ast.CompositeLit); ok {
			names = append(names, list.Elts...)
		}
	}
	for _, option := range options.Elts {
		pair, ok := option.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := pair.Key.(*ast.Ident)
		constant, ok := pair.Value.(*ast.CompositeLit)
		if !ok || key == nil || key.Name != "ConstLabels" {
			continue
		}
		for _, element := range constant.Elts {
			if label, ok := element.(*ast.KeyValueExpr); ok {
				names = append(names, label.Key)
			}
		}
	}
	var labels []string
	for _, name := range names {
		literal, ok := name.(*ast.BasicLit)
		if !ok {
			continue
		}
		if label, err := strconv.Unquote(literal.Value); err == nil {
			labels = append(labels, "`"+label+"`")
		}
	}
	return strings.Join(labels, ", ")
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }
