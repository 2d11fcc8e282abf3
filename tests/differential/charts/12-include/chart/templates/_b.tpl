{{ define "same" }}from _b{{ end }}
