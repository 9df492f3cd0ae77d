SELECT {schema}.clock_us()
